// The opcode table against IBTA's facts, written down here a second time and by hand: header bytes
// after the BTH as the specification's packet formats give them.
#include "wire/opcode.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "wire/headers.hpp"

namespace feroce::wire {
namespace {

// Every opcode and its extension size, from the specification's table of packet fields.
const std::map<unsigned, unsigned> kExtensionSizes{
    {0x00, 0},  {0x01, 0}, {0x02, 0},  {0x03, 4},  {0x04, 0},  {0x05, 4}, {0x06, 16}, {0x07, 0},
    {0x08, 0},  {0x09, 4}, {0x0a, 16}, {0x0b, 20}, {0x0c, 16}, {0x0d, 4}, {0x0e, 0},  {0x0f, 4},
    {0x10, 4},  {0x11, 4}, {0x12, 12}, {0x13, 28}, {0x14, 28}, {0x16, 4}, {0x17, 4},  {0x1c, 20},
    {0x1d, 16}, {0x20, 0}, {0x21, 0},  {0x22, 0},  {0x23, 4},  {0x24, 0}, {0x25, 4},  {0x26, 16},
    {0x27, 0},  {0x28, 0}, {0x29, 4},  {0x2a, 16}, {0x2b, 20}, {0x64, 8}, {0x65, 12}, {0x81, 0},
    {0xa0, 4},  {0xa1, 4}, {0xa2, 4},  {0xa3, 8},  {0xa4, 4},  {0xa5, 8}, {0xa6, 20}, {0xa7, 4},
    {0xa8, 4},  {0xa9, 8}, {0xaa, 20}, {0xab, 24}, {0xac, 20}, {0xad, 4}, {0xae, 0},  {0xaf, 4},
    {0xb0, 4},  {0xb1, 4}, {0xb2, 12}, {0xb3, 32}, {0xb4, 32}, {0xb6, 8}, {0xb7, 8}};

const OpcodeInfo& info_of(unsigned raw) {
    return opcode_info(static_cast<Opcode>(raw));
}

TEST(OpcodeTable, KnowsExactlyTheDefinedOpcodesAndTheirSizes) {
    for (unsigned raw = 0; raw < 256; ++raw) {
        const auto expected = kExtensionSizes.find(raw);
        ASSERT_EQ(info_of(raw).known, expected != kExtensionSizes.end()) << raw;
        if (!info_of(raw).known) continue;
        EXPECT_EQ(info_of(raw).extension_size, expected->second) << info_of(raw).name;
        EXPECT_EQ(static_cast<unsigned>(info_of(raw).service), raw & 0xe0);
    }
}

TEST(OpcodeTable, NamesAreUniqueAndSpeakOfPositionAndHeaders) {
    std::set<std::string> names;
    for (unsigned raw = 0; raw < 256; ++raw) {
        const OpcodeInfo& info = info_of(raw);
        if (!info.known) continue;
        const std::string name = info.name;
        const auto says = [&name](const char* word) {
            return name.find(word) != std::string::npos;
        };
        EXPECT_TRUE(names.insert(name).second) << name;
        EXPECT_EQ(info.position == Position::First, says("_FIRST")) << name;
        EXPECT_EQ(info.position == Position::Middle, says("_MIDDLE")) << name;
        EXPECT_EQ(info.position == Position::Last, says("_LAST")) << name;
        EXPECT_EQ(info.has(Header::Immediate), says("_IMM")) << name;
        EXPECT_EQ(info.has(Header::Ieth), says("_INV")) << name;
        EXPECT_EQ(info.verb == Verb::Send, says("_SEND")) << name;
        EXPECT_EQ(info.verb == Verb::ReadResponse, says("READ_RESP")) << name;
        EXPECT_EQ(info.verb == Verb::ReadRequest, says("READ_REQUEST")) << name;
    }
}

TEST(OpcodeTable, HeaderSizesAreThoseOfTheStructs) {
    const auto size = [](Header h) {
        return kHeaderSizes[static_cast<std::size_t>(
            std::countr_zero(static_cast<std::uint16_t>(h)))];
    };
    EXPECT_EQ(size(Header::Reth), Reth::kSize);
    EXPECT_EQ(size(Header::AtomicEth), AtomicEth::kSize);
    EXPECT_EQ(size(Header::Aeth), Aeth::kSize);
    EXPECT_EQ(size(Header::AtomicAckEth), AtomicAckEth::kSize);
    EXPECT_EQ(size(Header::Deth), Deth::kSize);
    EXPECT_EQ(size(Header::Xrceth), Xrceth::kSize);
    EXPECT_EQ(size(Header::Feth), Feth::kSize);
    EXPECT_EQ(size(Header::Immediate), 4);
    EXPECT_EQ(size(Header::Ieth), 4);
}

TEST(OpcodeTable, OffsetsFollowTheWireOrder) {
    EXPECT_EQ(opcode_info(Opcode::RcWriteOnlyImmediate).offset(Header::Reth), 0u);
    EXPECT_EQ(opcode_info(Opcode::RcWriteOnlyImmediate).offset(Header::Immediate), 16u);
    EXPECT_EQ(opcode_info(Opcode::RcAtomicAck).offset(Header::Aeth), 0u);
    EXPECT_EQ(opcode_info(Opcode::RcAtomicAck).offset(Header::AtomicAckEth), 4u);
    EXPECT_EQ(opcode_info(Opcode::RcFlush).offset(Header::Feth), 0u);
    EXPECT_EQ(opcode_info(Opcode::RcFlush).offset(Header::Reth), 4u);
    EXPECT_EQ(opcode_info(Opcode::UdSendOnlyImmediate).offset(Header::Deth), 0u);
    EXPECT_EQ(opcode_info(Opcode::UdSendOnlyImmediate).offset(Header::Immediate), 8u);
    EXPECT_EQ(opcode_info(Opcode::XrcWriteOnlyImmediate).offset(Header::Xrceth), 0u);
    EXPECT_EQ(opcode_info(Opcode::XrcWriteOnlyImmediate).offset(Header::Reth), 4u);
    EXPECT_EQ(opcode_info(Opcode::XrcWriteOnlyImmediate).offset(Header::Immediate), 20u);
}

TEST(OpcodeTable, ServicesShareTheLowBits) {
    static_assert(opcode_of(Service::Uc, Opcode::RcWriteLast) == Opcode::UcWriteLast);
    static_assert(opcode_of(Service::Xrc, Opcode::RcSendOnlyInvalidate) ==
                  Opcode::XrcSendOnlyInvalidate);
    static_assert(opcode_of(Service::Rc, Opcode::UcSendFirst) == Opcode::RcSendFirst);
    EXPECT_FALSE(opcode_info(opcode_of(Service::Uc, Opcode::RcReadRequest)).known);
}

TEST(OpcodeTable, StartAndEndOfMessages) {
    EXPECT_TRUE(opcode_info(Opcode::RcSendFirst).starts_message());
    EXPECT_FALSE(opcode_info(Opcode::RcSendFirst).ends_message());
    EXPECT_FALSE(opcode_info(Opcode::RcSendMiddle).starts_message());
    EXPECT_FALSE(opcode_info(Opcode::RcSendMiddle).ends_message());
    EXPECT_FALSE(opcode_info(Opcode::RcSendLast).starts_message());
    EXPECT_TRUE(opcode_info(Opcode::RcSendLast).ends_message());
    EXPECT_TRUE(opcode_info(Opcode::RcFetchAdd).starts_message());
    EXPECT_TRUE(opcode_info(Opcode::RcFetchAdd).ends_message());
}

}  // namespace
}  // namespace feroce::wire
