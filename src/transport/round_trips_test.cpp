#include "transport/round_trips.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace feroce::transport {
namespace {

using namespace std::chrono_literals;

TEST(RoundTrips, ABoundBelongsToItsOwnPlace) {
    EXPECT_EQ(RoundTrips::place(0), 0u);
    EXPECT_EQ(RoundTrips::place(1000), 0u);
    EXPECT_EQ(RoundTrips::place(1001), 1u);
    for (std::size_t i = 1; i < RoundTrips::kBounds; ++i) {
        const std::uint64_t bound_ns = (std::uint64_t{1} << i) * 1000;
        EXPECT_EQ(RoundTrips::place(bound_ns), i);
        EXPECT_EQ(RoundTrips::place(bound_ns + 1), i + 1);
    }
    EXPECT_EQ(RoundTrips::place(std::numeric_limits<std::uint64_t>::max()), RoundTrips::kBounds);
}

TEST(RoundTrips, AreCountedAndSummedAndNeverNegative) {
    RoundTrips trips;
    for (const Duration sample : {Duration(3us), Duration(4us), Duration(10s), Duration(-1us)})
        trips.add(sample);
    EXPECT_EQ(trips.counts[0], 1u);
    EXPECT_EQ(trips.counts[2], 2u);
    EXPECT_EQ(trips.counts[RoundTrips::kBounds], 1u);
    EXPECT_EQ(trips.sum_ns, 10'000'007'000u);
}

}  // namespace
}  // namespace feroce::transport
