#include "cli/flows.hpp"

#include <gtest/gtest.h>

namespace feroce::cli::flows_test {
namespace {

const Gid kA = Gid::from_v4(0x0a00'0001), kB = Gid::from_v4(0x0a00'0002);

PacketFlow there(std::uint32_t qpn) {
    return {kA, kB, qpn};
}

PacketFlow back(std::uint32_t qpn) {
    return {kB, kA, qpn};
}

TEST(FlowPairs, SearchForTheFirstAnswersAndThenForFew) {
    FlowPairs pairs;
    constexpr std::uint32_t kAnswers = 6'400;
    for (std::uint32_t psn = 0; psn < kAnswers; ++psn) {
        pairs.request(there(20), psn);
        pairs.request(there(21), 900'000 + psn);
        pairs.answer(back(10), psn);
    }
    EXPECT_EQ(pairs.partners().at(back(10)), there(20));
    EXPECT_EQ(pairs.searches(), FlowPairs::kSearchedSingly + kAnswers / FlowPairs::kSearchedThen);
}

TEST(FlowPairs, AreMendedByLaterAnswers) {
    FlowPairs pairs;
    pairs.request(there(20), 500);  // The capture begins behind the request that is answered.
    for (std::uint32_t i = 0; i < FlowPairs::kSearchedSingly; ++i) pairs.answer(back(10), 510);
    for (std::uint32_t psn = 600; psn < 3'000; ++psn) {
        pairs.request(there(21), psn);
        pairs.answer(back(10), psn);
    }
    EXPECT_EQ(pairs.partners().at(back(10)), there(21));
}

TEST(FlowPairs, AreBoundedAndCountWhatTheyLeaveOut) {
    FlowPairs pairs(2);
    pairs.request(there(20), 5);
    pairs.answer(back(10), 5);
    pairs.request(there(21), 900);
    pairs.answer(back(11), 900);
    pairs.datagram(there(1), 1);
    pairs.other(there(22));
    EXPECT_EQ(pairs.partners().size(), 1U);
    EXPECT_EQ(pairs.left_out(), 4U);
    EXPECT_TRUE(pairs.knows(there(20)));
    EXPECT_FALSE(pairs.knows(there(21)));
}

TEST(FlowPairs, OfManySendersOfDatagramsAFewAreCandidates) {
    FlowPairs pairs;
    for (std::uint32_t qpn = 1; qpn <= 100'000; ++qpn) pairs.datagram(there(1), qpn);
    EXPECT_EQ(pairs.partners().at(there(1)), back(1));
    EXPECT_EQ(pairs.left_out(), 0U);
}

}  // namespace
}  // namespace feroce::cli::flows_test
