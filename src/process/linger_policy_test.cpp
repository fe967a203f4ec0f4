#include "process/linger_policy.hpp"

#include <gtest/gtest.h>

namespace feroce::process::linger_policy_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Instant kStart{seconds(1)};

TEST(LingerPolicy, OneMessageNowAndThenCostsNothing) {
    LingerPolicy policy;
    for (int i = 0; i < 100; ++i) {
        const Instant now = kStart + i * milliseconds(10);
        policy.arrived(now);
        EXPECT_FALSE(policy.lingers(now)) << i;
    }
}

TEST(LingerPolicy, AConversationIsWaitedForButNotForLong) {
    LingerPolicy policy;
    policy.arrived(kStart);
    const Instant second = kStart + microseconds(10);
    policy.arrived(second);
    EXPECT_TRUE(policy.lingers(second));
    EXPECT_TRUE(policy.lingers(second + LingerPolicy::kLinger - microseconds(1)));
    EXPECT_FALSE(policy.lingers(second + LingerPolicy::kLinger));
    policy.arrived(second + LingerPolicy::kLinger + microseconds(1));
    EXPECT_FALSE(policy.lingers(second + LingerPolicy::kLinger + microseconds(2)));
}

TEST(LingerPolicy, GivesWayBeforeTheFirstLookAndOften) {
    LingerPolicy policy;
    policy.arrived(kStart);
    policy.arrived(kStart);
    EXPECT_TRUE(policy.gives_way(kStart));
    policy.gave_way(kStart, true);
    EXPECT_FALSE(policy.gives_way(kStart));
    EXPECT_TRUE(policy.gives_way(kStart + LingerPolicy::kGiveWayGap));
    EXPECT_TRUE(policy.lingers(kStart));
}

TEST(LingerPolicy, WhereTheCoreIsWantedItSleepsLongerEachTime) {
    LingerPolicy policy;
    Instant now = kStart;
    Duration before{0};
    for (int i = 0; i < 12; ++i) {
        // As soon as it lingers, somebody wants the core.
        const Instant begin = now;
        for (int k = 0; k < 1'000'000 && !policy.lingers(now); ++k) {
            now += microseconds(10);
            policy.arrived(now);
        }
        ASSERT_TRUE(policy.lingers(now));
        policy.gave_way(now, false);
        EXPECT_FALSE(policy.lingers(now));
        EXPECT_GE(now - begin, before) << i;
        before = std::min<Duration>(now - begin, LingerPolicy::kPauseMax);
    }
    EXPECT_GE(before, LingerPolicy::kPauseMax);
}

TEST(LingerPolicy, SuccessMakesItForget) {
    LingerPolicy policy;
    Instant now = kStart;
    const auto arrive = [&](bool alone) {
        now += microseconds(10);
        policy.arrived(now);
        if (policy.lingers(now)) policy.gave_way(now, alone);
    };
    for (int i = 0; i < 5; ++i) {
        now += seconds(2);
        arrive(false);
        arrive(false);
    }
    now += seconds(2);
    for (int i = 0; i < 3; ++i) arrive(true);
    ASSERT_TRUE(policy.lingers(now));
    arrive(false);
    now += LingerPolicy::kPauseMin;
    arrive(true);
    arrive(true);
    EXPECT_TRUE(policy.lingers(now));
}

}  // namespace
}  // namespace feroce::process::linger_policy_test
