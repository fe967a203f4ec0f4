#include "port/relay_watch.hpp"

#include <gtest/gtest.h>

namespace feroce::port::relay_watch_test {
namespace {

using Step = RelayWatch::Step;

const Instant kStart{std::chrono::hours(1)};

TEST(RelayWatch, SaysAWordAndGoesOnWhileItIsRead) {
    RelayWatch watch;
    Instant now = kStart;
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(watch.step(now, false), Step::Say);
        EXPECT_EQ(watch.step(now, true), Step::Wait) << "it has time to read";
        EXPECT_EQ(watch.due(), now + RelayWatch::kGap);
        now = watch.due();
    }
}

TEST(RelayWatch, LeavesARelayThatDoesNotRead) {
    RelayWatch watch;
    EXPECT_EQ(watch.step(kStart, false), Step::Say);
    EXPECT_EQ(watch.step(watch.due(), true), Step::Leave);
    watch.changed(watch.due());
    EXPECT_EQ(watch.step(watch.due(), false), Step::Say);
}

TEST(RelayWatch, AsksLessAndLessOftenWhereNobodyElseIs) {
    RelayWatch watch;
    Instant now = kStart;
    Duration before{};
    EXPECT_EQ(watch.step(now, false), Step::Say);
    for (int i = 0; i < 10; ++i) {
        now = watch.due();
        EXPECT_EQ(watch.step(now, true), Step::Leave);
        watch.failed(now);
        EXPECT_GE(watch.due() - now, before);
        before = watch.due() - now;
    }
    EXPECT_EQ(before, RelayWatch::kLastPause);
    now = watch.due();
    EXPECT_EQ(watch.step(now, false), Step::Say) << "it runs again";
    EXPECT_EQ(watch.due(), now + RelayWatch::kGap);
}

}  // namespace
}  // namespace feroce::port::relay_watch_test
