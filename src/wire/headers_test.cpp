// Every header's parse and emit are exact inverses, and each field sits where IBTA puts it.
#include "wire/headers.hpp"

#include <gtest/gtest.h>

#include <array>

#include "base/random.hpp"

namespace feroce::wire::headers_test {
namespace {

template <class T>
using Bytes = std::array<std::byte, T::kSize>;

template <class T>
Bytes<T> emitted(const T& header) {
    Bytes<T> bytes;
    bytes.fill(std::byte{0xa5});  // What emit leaves alone would show.
    header.emit(bytes);
    return bytes;
}

template <class T>
Bytes<T> bytes_of(const std::array<unsigned, T::kSize>& values) {
    Bytes<T> bytes;
    for (std::size_t i = 0; i < T::kSize; ++i) bytes[i] = static_cast<std::byte>(values[i]);
    return bytes;
}

template <class T>
class RoundTrip : public testing::Test {};
using AllHeaders = testing::Types<Bth, Reth, AtomicEth, Aeth, AtomicAckEth, Deth, Xrceth, Feth>;
TYPED_TEST_SUITE(RoundTrip, AllHeaders);

TYPED_TEST(RoundTrip, EveryPairOfBitsIsKept) {
    constexpr std::size_t kBits = TypeParam::kSize * 8;
    for (std::size_t i = 0; i < kBits; ++i) {
        for (std::size_t j = 0; j < kBits; ++j) {
            Bytes<TypeParam> bytes{};
            bytes[i / 8] |= std::byte{1} << (i % 8);
            bytes[j / 8] |= std::byte{1} << (j % 8);
            ASSERT_EQ(emitted(TypeParam::parse(bytes)), bytes) << "bits " << i << " and " << j;
        }
    }
}

TYPED_TEST(RoundTrip, RandomBytesAreKeptAndDifferentBytesGiveDifferentValues) {
    Prng prng(1);
    for (int round = 0; round < 10'000; ++round) {
        Bytes<TypeParam> bytes;
        for (std::byte& b : bytes) b = static_cast<std::byte>(prng.next());
        const TypeParam header = TypeParam::parse(bytes);
        ASSERT_EQ(emitted(header), bytes);
        ASSERT_EQ(TypeParam::parse(emitted(header)), header);
        const std::uint64_t bit = prng.below(TypeParam::kSize * 8);
        bytes[bit / 8] ^= std::byte{1} << (bit % 8);
        ASSERT_FALSE(TypeParam::parse(bytes) == header) << "bit " << bit << " has no field";
    }
}

TEST(Headers, BthLayout) {
    const Bth bth{.opcode = Opcode::RcWriteOnly,
                  .solicited = true,
                  .migrated = false,
                  .pad_count = 3,
                  .transport_version = 0,
                  .pkey = {0xffff},
                  .fecn = false,
                  .becn = true,
                  .reserved6 = 1,
                  .destination = {0x123456},
                  .ack_request = true,
                  .reserved7 = 2,
                  .psn = Psn(0xabcdef)};
    EXPECT_EQ(emitted(bth), bytes_of<Bth>({0x0a, 0xb0, 0xff, 0xff, 0x41, 0x12, 0x34, 0x56, 0x82,
                                           0xab, 0xcd, 0xef}));
}

TEST(Headers, FieldsWiderThanTheirBitsDoNotSpill) {
    const Bth wide{.pad_count = 0xff,
                   .transport_version = 0xf0,
                   .pkey = {0},
                   .reserved6 = 0xc0,
                   .destination = {0xff00'0000},
                   .reserved7 = 0x80};
    EXPECT_EQ(emitted(wide), bytes_of<Bth>({0x04, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(emitted(Aeth{.syndrome = {0}, .msn = 0xff00'0001}), bytes_of<Aeth>({0, 0, 0, 1}));
    EXPECT_EQ(emitted(Deth{.qkey = {0}, .source = {0xff00'0000}}), Bytes<Deth>{});
    EXPECT_EQ(emitted(Xrceth{.srq = {0xff00'0000}}), Bytes<Xrceth>{});
    EXPECT_EQ(emitted(Feth{.placement = 0xf0, .selectivity = 0xfc}), Bytes<Feth>{});
}

TEST(Headers, ExtensionLayouts) {
    EXPECT_EQ(emitted(Reth{.address = 0x1122334455667788, .rkey = {0x99aabbcc}, .length = 0x10203}),
              bytes_of<Reth>({0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb,
                              0xcc, 0, 1, 2, 3}));
    EXPECT_EQ(emitted(AtomicEth{.address = 1, .rkey = {2}, .swap_or_add = 3, .compare = 4}),
              bytes_of<AtomicEth>({0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0,
                                   0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4}));
    EXPECT_EQ(emitted(Deth{.qkey = {0x80010000}, .source = {0x15}, .reserved = 7}),
              bytes_of<Deth>({0x80, 1, 0, 0, 7, 0, 0, 0x15}));
    EXPECT_EQ(emitted(Xrceth{.srq = {0x010203}, .reserved = 9}), bytes_of<Xrceth>({9, 1, 2, 3}));
    EXPECT_EQ(emitted(Feth{.placement = 2, .selectivity = 1}), bytes_of<Feth>({0, 0, 0, 0x12}));
    EXPECT_EQ(emitted(AtomicAckEth{.original = 0x0102030405060708}),
              bytes_of<AtomicAckEth>({1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Syndrome, AllRawValuesHaveOneMeaning) {
    for (unsigned raw = 0; raw < 256; ++raw) {
        const Syndrome s{static_cast<std::uint8_t>(raw)};
        EXPECT_EQ(s.value(), raw % 32);
        switch (raw / 32) {
            case 0:
                EXPECT_EQ(s.kind(), Syndrome::Kind::Ack);
                break;
            case 1:
                EXPECT_EQ(s.kind(), Syndrome::Kind::Rnr);
                break;
            case 3:
                EXPECT_EQ(s.kind(), Syndrome::Kind::Nak);
                break;
            default:
                EXPECT_EQ(s.kind(), Syndrome::Kind::Reserved);
                break;
        }
    }
}

TEST(Syndrome, MadeAsOnTheWire) {
    EXPECT_EQ(Syndrome::ack(kNoCredits).raw, 0x1f);
    EXPECT_EQ(Syndrome::rnr(12).raw, 0x2c);
    EXPECT_EQ(Syndrome::nak(NakCode::SequenceError).raw, 0x60);
    EXPECT_EQ(Syndrome::nak(NakCode::InvalidRequest).raw, 0x61);
    EXPECT_EQ(Syndrome::nak(NakCode::RemoteAccess).raw, 0x62);
    EXPECT_EQ(Syndrome::nak(NakCode::RemoteOperational).raw, 0x63);
    EXPECT_EQ(Syndrome::nak(NakCode::RemoteOperational).nak_code(), NakCode::RemoteOperational);
}

TEST(Syndrome, RnrTimers) {
    EXPECT_EQ(rnr_timer_us(0), 655'360u);
    EXPECT_EQ(rnr_timer_us(1), 10u);
    EXPECT_EQ(rnr_timer_us(12), 640u);
    EXPECT_EQ(rnr_timer_us(31), 491'520u);
    for (std::uint8_t code = 2; code < 32; ++code)
        EXPECT_GT(rnr_timer_us(code), rnr_timer_us(static_cast<std::uint8_t>(code - 1)));
}

}  // namespace
}  // namespace feroce::wire::headers_test
