#include "port/route_memory.hpp"

#include <gtest/gtest.h>

namespace feroce::port {
namespace {

const Gid kPeer = Gid::from_v4(0x0a000001);
const Gid kOurs = Gid::from_v4(0x0a000002);
const Gid kOther = Gid::from_v4(0x0a000003);
constexpr Instant kStart{std::chrono::seconds(1)};

TEST(RouteMemory, AnAnswerIsRememberedForAWhile) {
    RouteMemory memory;
    EXPECT_FALSE(memory.find(kStart, kPeer, 0));
    memory.keep(kStart, kPeer, 0, kOurs, memory.version());
    EXPECT_EQ(memory.find(kStart, kPeer, 0), kOurs);
    EXPECT_EQ(memory.find(kStart + RouteMemory::kAge - Duration(1), kPeer, 0), kOurs);
    EXPECT_FALSE(memory.find(kStart + RouteMemory::kAge, kPeer, 0));
}

TEST(RouteMemory, OfAnotherDestinationOrLinkNothingIsKnown) {
    RouteMemory memory;
    memory.keep(kStart, kPeer, 1, kOurs, memory.version());
    EXPECT_FALSE(memory.find(kStart, kOther, 1));
    EXPECT_FALSE(memory.find(kStart, kPeer, 2));
}

TEST(RouteMemory, NothingOutlivesAChangeOfTheTables) {
    RouteMemory memory;
    memory.keep(kStart, kPeer, 0, kOurs, memory.version());
    memory.forget();
    EXPECT_FALSE(memory.find(kStart, kPeer, 0));
}

TEST(RouteMemory, AnAnswerFromBeforeAChangeIsNotKept) {
    RouteMemory memory;
    const std::uint64_t asked = memory.version();
    memory.forget();
    memory.keep(kStart, kPeer, 0, kOurs, asked);
    EXPECT_FALSE(memory.find(kStart, kPeer, 0));
}

TEST(RouteMemory, TheOldestMakesRoom) {
    RouteMemory memory;
    for (std::uint32_t i = 0; i <= RouteMemory::kPlaces; ++i)
        memory.keep(kStart, Gid::from_v4(i + 1), 0, kOurs, memory.version());
    EXPECT_FALSE(memory.find(kStart, Gid::from_v4(1), 0));
    EXPECT_EQ(memory.find(kStart, Gid::from_v4(2), 0), kOurs);
    EXPECT_EQ(memory.find(kStart, Gid::from_v4(RouteMemory::kPlaces + 1), 0), kOurs);
}

}  // namespace
}  // namespace feroce::port
