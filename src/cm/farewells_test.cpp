#include "cm/farewells.hpp"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace feroce::cm {
namespace {

using namespace std::chrono_literals;

struct Wire final : MadPort {
    struct Sent {
        Gid source;
        Gid destination;
        wire::CmDreq dreq;
    };
    void send(const Gid& source, const Gid& destination, ByteView mad) override {
        const auto parsed = wire::parse_cm_mad(mad);
        ASSERT_TRUE(parsed.has_value());
        ASSERT_EQ(parsed->attribute, wire::CmAttribute::Dreq);
        sent.push_back({source, destination, wire::CmDreq::parse(parsed->message)});
    }
    bool offer(const Gid&, const Gid&, ByteView, Origin) override { return false; }

    std::vector<Sent> sent;
};

Bond bond(std::uint32_t number) {
    return {.local_id = {0x0500'0000 + number},
            .remote_id = {0x0700'0000 + number},
            .remote_qpn = {0x07'0000 + number},
            .local = Gid::from_v4(0x0a00'0001),
            .remote = Gid::from_v4(0x0a00'0002)};
}

TEST(Farewells, ABondIsToldAFewTimesAndForgotten) {
    Wire wire;
    Farewells farewells;
    const Instant start{1s};
    farewells.add(start, bond(3));
    Instant now = start;
    while (farewells.next_wakeup() != kNever) {
        now = std::max(now, farewells.next_wakeup());
        EXPECT_EQ(farewells.run(now, wire), 1u);
    }
    EXPECT_LT(now - start, 2s);
    EXPECT_EQ(farewells.size(), 0u);
    ASSERT_EQ(wire.sent.size(), std::size_t{Farewells::kTimes});
    for (const Wire::Sent& s : wire.sent) {
        EXPECT_EQ(s.source, bond(3).local);
        EXPECT_EQ(s.destination, bond(3).remote);
        EXPECT_EQ(s.dreq.local_id, bond(3).local_id);
        EXPECT_EQ(s.dreq.remote_id, bond(3).remote_id);
        EXPECT_EQ(s.dreq.remote_qpn, bond(3).remote_qpn);
    }
}

TEST(Farewells, NothingLeavesBeforeItIsDue) {
    Wire wire;
    Farewells farewells;
    farewells.add(Instant{1s}, bond(1));
    farewells.run(Instant{1s}, wire);
    EXPECT_EQ(farewells.run(Instant{1s} + 50ms, wire), 0u);
    EXPECT_EQ(wire.sent.size(), 1u);
}

TEST(Farewells, ALargeEstateIsPacedAndAllAreToldSoon) {
    Wire wire;
    Farewells farewells;
    const Instant start{1s};
    for (std::uint32_t i = 0; i < 4096; ++i) farewells.add(start, bond(i));
    Instant now = start;
    std::map<std::uint32_t, int> told;
    Instant all_told = kNever;
    while (farewells.next_wakeup() != kNever) {
        now = std::max(now, farewells.next_wakeup());
        EXPECT_LE(farewells.run(now, wire), 64u);
        for (const Wire::Sent& s : wire.sent) ++told[s.dreq.local_id.raw];
        wire.sent.clear();
        if (told.size() == 4096) all_told = std::min(all_told, now);
    }
    EXPECT_LT(all_told - start, 500ms);
    for (const auto& [id, times] : told) EXPECT_EQ(times, Farewells::kTimes) << id;
}

TEST(Farewells, ThereIsABound) {
    Wire wire;
    Farewells farewells;
    for (std::uint32_t i = 0; i < Farewells::kMax + 10; ++i) farewells.add(Instant{1s}, bond(i));
    EXPECT_EQ(farewells.size(), Farewells::kMax);
}

}  // namespace
}  // namespace feroce::cm
