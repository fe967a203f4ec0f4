// Every message against its bytes: those of rdma-core where a capture has them.
#include <gtest/gtest.h>

#include "rsocket/test_wire.hpp"

namespace feroce::rsockets {
namespace messages_test {

TEST(RsocketMessages, GreetingOfRdmaCoreIsReadAndWrittenAlike) {
    const std::vector<std::byte> bytes = from_hex(kRequestHex);
    const std::optional<Greeting> greeting = Greeting::parse(bytes);
    ASSERT_TRUE(greeting);
    EXPECT_EQ(greeting->order, std::endian::little);
    EXPECT_EQ(greeting->credits, 384);
    EXPECT_EQ(greeting->mappings, 0U);
    EXPECT_EQ(greeting->targets, (Target{0xaaaaf2d91000, 0x10b4, 2}));
    EXPECT_EQ(greeting->first, (Target{0xffff8d41b000, 0x11a1, 1 << 19}));
    const Greeting::Bytes again = greeting->emit();
    EXPECT_EQ(std::vector<std::byte>(again.begin(), again.end()), bytes);
}

TEST(RsocketMessages, GreetingOfAnotherVersionOrCutOffIsNone) {
    std::vector<std::byte> bytes = from_hex(kRequestHex);
    EXPECT_FALSE(Greeting::parse(std::span(bytes).first(39)));
    bytes[0] = std::byte{2};
    EXPECT_FALSE(Greeting::parse(bytes));
}

TEST(RsocketMessages, PrivateDataMayBePadded) {
    std::vector<std::byte> bytes = from_hex(kReplyHex);
    bytes.resize(196);
    ASSERT_TRUE(Greeting::parse(bytes));
    EXPECT_EQ(Greeting::parse(bytes)->first.key, 0x0f4eU);
}

TEST(RsocketMessages, NumberOfMappingsIsCoarseAboveHalfAByte) {
    EXPECT_EQ(told_mappings(0), 0U);
    EXPECT_EQ(told_mappings(128), 128U);
    EXPECT_EQ(told_mappings(255), 128U);
    EXPECT_EQ(told_mappings(256), 256U);
    EXPECT_EQ(told_mappings(1000), 768U);
    EXPECT_EQ(told_mappings(kMostMappings), kMostMappings);
}

TEST(RsocketMessages, EntriesAreInTheOrderOfTheirOwner) {
    std::array<std::byte, kMappingBytes> bytes{};
    const Mapping mapping{0x1122334455667788, {0x99aabbccddeeff00, 0x01020304, 0x05060708}};
    const auto emitted = [&](std::endian order) {
        emit_mapping(bytes, mapping, order);
        return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    EXPECT_EQ(emitted(std::endian::big),
              from_hex("112233445566778899aabbccddeeff000102030405060708"));
    EXPECT_EQ(emitted(std::endian::little),
              from_hex("887766554433221100ffeeddccbbaa990403020108070605"));
    EXPECT_EQ(parse_mapping(bytes, std::endian::little).target, mapping.target);
}

TEST(RsocketMessages, ImmediateHasThreeBitsOfKind) {
    EXPECT_EQ((Immediate{Kind::Data, 0x400}.emit()), 0x400U);
    EXPECT_EQ((Immediate{Kind::Credits, 384}.emit()), 0x80000180U);
    EXPECT_EQ((Immediate{Kind::Control, 0}.emit()), 0xe0000000U);
    EXPECT_EQ(Immediate::parse(0xc0000005).kind, Kind::Mapping);
    EXPECT_EQ(Immediate::parse(0xc0000005).value, 5U);
}

}  // namespace messages_test
}  // namespace feroce::rsockets
