#include "device/icrc_check.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.hpp"
#include "wire/icrc.hpp"

namespace feroce::device {
namespace {

const Gid kPeer = Gid::from_v4(0x0a000001);
const Gid kSelf = Gid::from_v4(0x0a0000fe);
constexpr Instant kStart = Instant(std::chrono::seconds(1000));

// A sender's packet with any IPv4 id, which the receiver is not shown.
struct Sealed {
    std::vector<std::byte> bytes;
    Datagram datagram;

    Sealed(const Gid& source, const Gid& destination, std::uint16_t id, std::size_t size = 64)
        : bytes(size, std::byte{0x5a}) {
        datagram.source = source;
        datagram.destination = destination;
        datagram.source_port = 50000;
        wire::seal({source, destination, 50000, wire::kRocePort}, id, bytes);
        datagram.bytes = bytes;
    }
    explicit Sealed(std::uint16_t id) : Sealed(kPeer, kSelf, id) {}
    void corrupt() { bytes[20] ^= std::byte{1}; }
};

class IcrcCheckTest : public ::testing::Test {
protected:
    IcrcVerdict judge(std::uint16_t id) { return check_.verify(now_, Sealed(id).datagram); }
    void pass(Duration time) { now_ += time; }

    IcrcCheck check_;
    Instant now_ = kStart;
};

TEST_F(IcrcCheckTest, ThePredictedIdIsExact) {
    Sealed packet(5);
    packet.datagram.id_hint = 5;
    EXPECT_EQ(check_.verify(now_, packet.datagram), IcrcVerdict::Good);
    packet.corrupt();
    EXPECT_EQ(check_.verify(now_, packet.datagram), IcrcVerdict::Bad);
}

TEST_F(IcrcCheckTest, Ipv6IsExactAndHasNoId) {
    Gid source = kPeer, destination = kSelf;
    source.raw[0] = destination.raw[0] = 0x20;
    Sealed packet(source, destination, 0);
    packet.datagram.id_hint = 3;  // Means nothing.
    EXPECT_EQ(check_.verify(now_, packet.datagram), IcrcVerdict::Good);
    packet.corrupt();
    EXPECT_EQ(check_.verify(now_, packet.datagram), IcrcVerdict::Bad);
}

TEST_F(IcrcCheckTest, TooShortIsBad) {
    Sealed packet(0);
    packet.datagram.bytes = packet.datagram.bytes.first(8);
    EXPECT_EQ(check_.verify(now_, packet.datagram), IcrcVerdict::Bad);
}

TEST_F(IcrcCheckTest, AStrangerMayStartAnywhereAndThenCountsOn) {
    EXPECT_EQ(judge(40'000), IcrcVerdict::Good);
    EXPECT_EQ(judge(40'000), IcrcVerdict::Good) << "the network may double it";
    EXPECT_EQ(judge(44'096), IcrcVerdict::Good) << "4096 ahead";
    EXPECT_EQ(judge(48'193), IcrcVerdict::Unsolvable) << "4097 ahead";
    EXPECT_EQ(judge(44'095), IcrcVerdict::Unsolvable) << "behind";
    EXPECT_EQ(judge(48'192), IcrcVerdict::Good) << "refused ids moved nothing";
}

TEST_F(IcrcCheckTest, CountingWrapsThroughTheSegmentIds) {
    EXPECT_EQ(judge(65'000), IcrcVerdict::Good);
    EXPECT_EQ(judge(20), IcrcVerdict::Good);
    EXPECT_EQ(judge(127), IcrcVerdict::Good);
    EXPECT_EQ(judge(128), IcrcVerdict::Good);
    EXPECT_EQ(judge(4224), IcrcVerdict::Good);
}

TEST_F(IcrcCheckTest, SegmentIdsOnlyFromWhomEverSentOne) {
    EXPECT_EQ(judge(30'000), IcrcVerdict::Good);
    EXPECT_EQ(judge(127), IcrcVerdict::Unsolvable);
    EXPECT_EQ(judge(0), IcrcVerdict::Good) << "predicted, so exact";
    EXPECT_EQ(judge(127), IcrcVerdict::Good);
    EXPECT_EQ(judge(3), IcrcVerdict::Good) << "the next send";
}

TEST_F(IcrcCheckTest, SegmentsDoNotLoseThePlaceOfACountingSender) {
    EXPECT_EQ(judge(30'000), IcrcVerdict::Good);
    EXPECT_EQ(judge(0), IcrcVerdict::Good);
    EXPECT_EQ(judge(30'001), IcrcVerdict::Good);
    EXPECT_EQ(judge(4000), IcrcVerdict::Unsolvable);
}

// Of such peers a damaged packet passes some twenty times less often than of those who count.
TEST_F(IcrcCheckTest, WhoseIdsAreAlwaysAsPredictedDoesNotBeginToCount) {
    EXPECT_EQ(judge(0), IcrcVerdict::Good);
    EXPECT_EQ(judge(3944), IcrcVerdict::Unsolvable);
    EXPECT_EQ(judge(129), IcrcVerdict::Unsolvable);
    EXPECT_EQ(judge(63), IcrcVerdict::Good) << "a segment";
}

TEST_F(IcrcCheckTest, CountingMayBeginAtThePredictedId) {
    for (std::uint16_t id = 0; id < 300; ++id) EXPECT_EQ(judge(id), IcrcVerdict::Good) << id;
    EXPECT_EQ(judge(4000), IcrcVerdict::Good) << "by now it counts";
}

TEST_F(IcrcCheckTest, SilenceFreesAndRefusedPacketsAreSilence) {
    EXPECT_EQ(judge(30'000), IcrcVerdict::Good);
    for (int second = 0; second < 9; ++second) {
        pass(std::chrono::seconds(1));
        EXPECT_EQ(judge(10'000), IcrcVerdict::Unsolvable);
    }
    pass(std::chrono::seconds(1));
    EXPECT_EQ(judge(10'000), IcrcVerdict::Good);
    EXPECT_EQ(judge(30'001), IcrcVerdict::Unsolvable) << "it counts from the new place";
}

TEST_F(IcrcCheckTest, SourcesAreApart) {
    EXPECT_EQ(judge(30'000), IcrcVerdict::Good);
    const Sealed other(Gid::from_v4(0x0a000002), kSelf, 9000);
    EXPECT_EQ(check_.verify(now_, other.datagram), IcrcVerdict::Good);
    EXPECT_EQ(judge(9001), IcrcVerdict::Unsolvable);
}

// A solved id alone would let about 15 of a million corrupted packets pass.
TEST_F(IcrcCheckTest, CorruptionHardlyEverPasses) {
    Prng random(42);
    EXPECT_EQ(judge(0), IcrcVerdict::Good);
    Sealed packet(0);
    int passed = 0, had_an_id = 0;
    for (int i = 0; i < 1'000'000; ++i) {
        const std::uint64_t noise = random.next() | 1;
        for (std::size_t b = 0; b < 8; ++b)
            packet.bytes[24 + b] = static_cast<std::byte>(noise >> (8 * b) & 0xff);
        const IcrcVerdict verdict = check_.verify(now_, packet.datagram);
        passed += verdict == IcrcVerdict::Good ? 1 : 0;
        had_an_id += verdict == IcrcVerdict::Unsolvable ? 1 : 0;
    }
    EXPECT_GE(had_an_id, 5);
    EXPECT_LE(passed, 4);
}

TEST_F(IcrcCheckTest, NamesASourceThatNeverVerifies) {
    Sealed mangled(Gid::from_v4(0x0a000003), kSelf, 0);
    mangled.corrupt();
    for (int i = 0; i < 9; ++i) check_.verify(now_, mangled.datagram);
    EXPECT_FALSE(check_.never_verified(10).has_value());
    check_.verify(now_, mangled.datagram);
    EXPECT_EQ(check_.never_verified(10), mangled.datagram.source);
    mangled.corrupt();  // Undoes it.
    EXPECT_EQ(check_.verify(now_, mangled.datagram), IcrcVerdict::Good);
    EXPECT_FALSE(check_.never_verified(10).has_value()) << "it can";
}

TEST_F(IcrcCheckTest, RemembersThoseHeardLast) {
    EXPECT_EQ(judge(30'000), IcrcVerdict::Good);
    // The peer is heard now and then, and thousands of others only once.
    for (std::uint32_t i = 0; i < 4 * IcrcCheck::kSourcesMax; ++i) {
        pass(std::chrono::microseconds(1));
        const Sealed stranger(Gid::from_v4(0x0b000000 + i), kSelf, 0);
        EXPECT_EQ(check_.verify(now_, stranger.datagram), IcrcVerdict::Good);
        if (i % 64 == 0) {
            EXPECT_EQ(judge(30'000), IcrcVerdict::Good);
        }
    }
    EXPECT_EQ(judge(9000), IcrcVerdict::Unsolvable) << "not forgotten";
    for (std::uint32_t i = 0; i < 8 * IcrcCheck::kSourcesMax; ++i) {
        pass(std::chrono::microseconds(1));
        const Sealed stranger(Gid::from_v4(0x0c000000 + i), kSelf, 0);
        check_.verify(now_, stranger.datagram);
    }
    EXPECT_EQ(judge(9000), IcrcVerdict::Good) << "forgotten, so a stranger again";
}

}  // namespace
}  // namespace feroce::device
