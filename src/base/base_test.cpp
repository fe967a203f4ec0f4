#include <gtest/gtest.h>

#include <cerrno>
#include <deque>

#include "base/bytes.hpp"
#include "base/gid.hpp"
#include "base/packet_number.hpp"
#include "base/psn.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "base/ring.hpp"

namespace feroce {
namespace {

TEST(Psn, WrapsAndMeasures) {
    EXPECT_EQ(Psn(0xff'ffff) + 1, Psn(0));
    EXPECT_EQ(Psn(0) - 1, Psn(0xff'ffff));
    for (const std::uint32_t start : {0U, 1U, 0x7f'ffffU, 0x80'0000U, 0xff'fffeU, 0xff'ffffU}) {
        for (std::int32_t step = -5; step <= 5; ++step) {
            const Psn to = Psn(start) + static_cast<std::uint32_t>(step);
            EXPECT_EQ(distance(Psn(start), to), step);
            EXPECT_EQ(distance(to, Psn(start)), -step);
        }
    }
}

TEST(PacketNumber, IsWidenedToTheNearest) {
    constexpr std::uint64_t kHalf = 1U << 23;
    for (const std::uint32_t start : {0U, 1U, 0x7f'ffffU, 0x80'0000U, 0xff'ffffU}) {
        // As if several rounds of PSNs had passed, and as if none had.
        for (const std::uint64_t rounds : {0U, 1U, 300U}) {
            const PacketNumber near = PacketNumber::first(Psn(start)) + (rounds << 24);
            EXPECT_EQ(near.psn(), Psn(start));
            for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{1}, kHalf - 1})
                EXPECT_EQ(near.nearest((near + n).psn()), near + n);
            for (const std::uint64_t n : {std::uint64_t{1}, kHalf - 1, kHalf})
                EXPECT_EQ(near.nearest((near - n).psn()), near - n);
            EXPECT_EQ(near.nearest((near + kHalf).psn()), near - kHalf);
        }
    }
    EXPECT_LT(PacketNumber::first(Psn(0xff'ffff)), PacketNumber::first(Psn(0xff'ffff)) + 1);
    EXPECT_EQ((PacketNumber::first(Psn(3)) + 7) - PacketNumber::first(Psn(3)), 7U);
}

TEST(Result, CarriesValueOrReason) {
    const Result<int> good = 7;
    const Result<int> bad = Error{EINVAL, "because"};
    EXPECT_EQ(*good, 7);
    EXPECT_FALSE(bad.has_value());
    EXPECT_EQ(bad.error().code, EINVAL);
    EXPECT_STREQ(bad.error().why, "because");
    const auto hand_on = [](const Result<void>& r) -> Result<int> {
        TRY(r);
        return 1;
    };
    EXPECT_EQ(*hand_on({}), 1);
    EXPECT_EQ(hand_on(Error{EBUSY, ""}).error().code, EBUSY);
}

TEST(Bytes, RoundTrip) {
    std::array<std::byte, 8> b{};
    store_be64(b, 0x0102'0304'0506'0708);
    EXPECT_EQ(b[0], std::byte{1});
    EXPECT_EQ(load_be64(b), 0x0102'0304'0506'0708U);
    store_be24(std::span(b).first<3>(), 0xabcdef);
    EXPECT_EQ(load_be24(std::span(b).first<3>()), 0xabcdefU);
    store_be16(std::span(b).first<2>(), 0xfedc);
    EXPECT_EQ(load_be16(std::span(b).first<2>()), 0xfedcU);
}

TEST(Gid, PrintsAsAddress) {
    EXPECT_EQ(to_string(Gid::from_v4(0x7f00'0001)), "127.0.0.1");
    EXPECT_EQ(to_string(Gid{}), "::");
    Gid g;
    g.raw[0] = 0xfe;
    g.raw[1] = 0x80;
    g.raw[15] = 1;
    EXPECT_EQ(to_string(g), "fe80::1");
    Gid full;
    for (std::size_t i = 0; i < 16; ++i) full.raw[i] = static_cast<std::uint8_t>(i + 1);
    EXPECT_EQ(to_string(full), "102:304:506:708:90a:b0c:d0e:f10");
    Gid middle;
    middle.raw[1] = 1;
    middle.raw[15] = 2;
    EXPECT_EQ(to_string(middle), "1::2");
}

TEST(Prng, RepeatsBySeed) {
    Prng a(7), b(7), c(8);
    bool differs = false;
    for (int i = 0; i < 100; ++i) {
        const std::uint64_t x = a.next();
        EXPECT_EQ(x, b.next());
        differs |= x != c.next();
    }
    EXPECT_TRUE(differs);
}

TEST(Ring, BehavesLikeABoundedDeque) {
    Prng random(1);
    Ring<std::uint64_t> ring(5);
    std::deque<std::uint64_t> model;
    for (int i = 0; i < 10'000; ++i) {
        if (random.chance(0.5) && !ring.full()) {
            ring.push(random.next());
            model.push_back(ring.back());
        } else if (!ring.empty()) {
            EXPECT_EQ(ring.front(), model.front());
            ring.pop();
            model.pop_front();
        }
        ASSERT_EQ(ring.size(), model.size());
        for (std::size_t j = 0; j < model.size(); ++j) ASSERT_EQ(ring[j], model[j]);
    }
}

}  // namespace
}  // namespace feroce
