#include "port/relay_watch.hpp"

#include <gtest/gtest.h>

namespace feroce::port::relay_watch_test {
namespace {

using Step = RelayWatch::Step;

const Instant kStart{std::chrono::hours(1)};

// With a relay in a state that the test sets.
struct Watched : RelayWatch {
    ProcessState relay = ProcessState::Stopped;
    Step step(Instant now, bool unread, bool traffic) {
        return RelayWatch::step(now, unread, traffic, idle_gap, [this] {
            ++looks;
            return relay;
        });
    }
    Duration idle_gap{};
    int looks = 0;
};

TEST(RelayWatch, SaysAWordAndGoesOnWhileItIsRead) {
    Watched watch;
    Instant now = kStart;
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(watch.step(now, false, true), Step::Say);
        EXPECT_EQ(watch.step(now, true, true), Step::Wait) << "it has time to read";
        EXPECT_EQ(watch.due(), now + RelayWatch::kGap);
        now = watch.due();
    }
}

TEST(RelayWatch, RestsWithoutTraffic) {
    Watched watch;
    EXPECT_TRUE(watch.rests());
    EXPECT_EQ(watch.step(kStart, false, false), Step::Wait);
    EXPECT_TRUE(watch.rests());
    EXPECT_EQ(watch.step(kStart, false, true), Step::Say);
    const Instant due = watch.due();
    EXPECT_EQ(watch.step(due - Duration(1), false, false), Step::Wait);
    EXPECT_EQ(watch.due(), due) << "whether the word was read is not known yet";
    EXPECT_EQ(watch.step(due, false, false), Step::Wait);
    EXPECT_TRUE(watch.rests());
}

TEST(RelayWatch, LooksWithoutAWordWhileAGuestWithQueuePairsRests) {
    Watched watch;
    watch.relay = ProcessState::Running;
    EXPECT_EQ(watch.step(kStart, false, false), Step::Wait);
    EXPECT_EQ(watch.due(), kNever);
    watch.idle_gap = RelayWatch::kIdleGap;
    EXPECT_EQ(watch.step(kStart, false, false), Step::Wait);
    EXPECT_EQ(watch.looks, 0) << "it has just got them";
    for (int i = 1; i < 100; ++i) {
        const Instant due = watch.due();
        EXPECT_EQ(due, kStart + i * RelayWatch::kIdleGap);
        EXPECT_EQ(watch.step(due - Duration(1), false, false), Step::Wait) << "woken by others";
        EXPECT_EQ(watch.step(due, false, false), Step::Wait);
        EXPECT_EQ(watch.looks, i);
        EXPECT_TRUE(watch.rests());
    }
    watch.relay = ProcessState::Stopped;
    const Instant due = watch.due();
    EXPECT_EQ(watch.step(due, false, false), Step::Leave);
    watch.changed(due);
    EXPECT_EQ(watch.due(), due + RelayWatch::kGap) << "is the word to the new one read?";
    EXPECT_EQ(watch.step(watch.due(), false, false), Step::Wait);
    EXPECT_TRUE(watch.rests());
    EXPECT_EQ(watch.due(), due + RelayWatch::kGap + RelayWatch::kIdleGap);
    watch.idle_gap = {};
    EXPECT_EQ(watch.step(due + RelayWatch::kGap, false, false), Step::Wait);
    EXPECT_EQ(watch.due(), kNever) << "it has none any more";
}

TEST(RelayWatch, AGuestThatRestsAsksLessAndLessOftenWhereNobodyElseIs) {
    Watched watch;
    watch.idle_gap = RelayWatch::kIdleGap;
    EXPECT_EQ(watch.step(kStart, false, false), Step::Wait);
    Duration before{};
    for (int i = 0; i < 10; ++i) {
        const Instant now = watch.due();
        EXPECT_EQ(watch.step(now, false, false), Step::Leave);
        watch.failed(now);
        EXPECT_GE(watch.due() - now, before);
        before = watch.due() - now;
    }
    EXPECT_EQ(before, RelayWatch::kLastPause);
    watch.relay = ProcessState::Running;
    const Instant now = watch.due();
    EXPECT_EQ(watch.step(now, false, false), Step::Wait) << "it runs again";
    EXPECT_EQ(watch.due(), now + RelayWatch::kIdleGap);
}

// What the system does not know of would take words, which wake the relay.
TEST(RelayWatch, AGuestThatRestsKeepsARelayOfWhichItKnowsNothing) {
    Watched watch;
    watch.relay = ProcessState::Unknown;
    watch.idle_gap = RelayWatch::kIdleGap;
    EXPECT_EQ(watch.step(kStart, false, false), Step::Wait);
    EXPECT_EQ(watch.step(watch.due(), false, false), Step::Wait);
}

// What is unread then was said a moment ago, by a wish of another thread.
TEST(RelayWatch, BelievesInNoRelaysEndAfterARest) {
    Watched watch;
    EXPECT_EQ(watch.step(kStart, true, true), Step::Say);
    EXPECT_EQ(watch.step(watch.due(), true, false), Step::Leave);
}

TEST(RelayWatch, AWordIsFollowedByAnotherIfThereWasTrafficBetween) {
    Watched watch;
    EXPECT_EQ(watch.step(kStart, false, true), Step::Say);
    EXPECT_EQ(watch.step(kStart, false, true), Step::Wait);
    EXPECT_EQ(watch.step(watch.due(), false, false), Step::Say);
    EXPECT_EQ(watch.step(watch.due(), false, false), Step::Wait);
    EXPECT_TRUE(watch.rests());
}

TEST(RelayWatch, LeavesARelayThatDoesNotRead) {
    Watched watch;
    EXPECT_EQ(watch.step(kStart, false, true), Step::Say);
    EXPECT_EQ(watch.step(watch.due(), true, false), Step::Leave);
    watch.changed(watch.due());
    EXPECT_EQ(watch.step(watch.due(), false, true), Step::Say);
}

// On a busy machine. It would only have more to do if all its guests came again.
TEST(RelayWatch, KeepsARelayThatWaitsForACore) {
    Watched watch;
    watch.relay = ProcessState::Running;
    EXPECT_EQ(watch.step(kStart, false, true), Step::Say);
    const Instant found = watch.due();
    while (watch.due() < found + RelayWatch::kFrozen)
        EXPECT_EQ(watch.step(watch.due(), true, true), Step::Wait);
    EXPECT_EQ(watch.step(watch.due(), false, true), Step::Say) << "it has read";
    for (const Instant again = watch.due(); watch.due() < again + RelayWatch::kFrozen;)
        EXPECT_EQ(watch.step(watch.due(), true, true), Step::Wait);
    EXPECT_EQ(watch.step(watch.due(), true, true), Step::Leave) << "it is frozen";
}

TEST(RelayWatch, LeavesARelayOfWhichItKnowsNothing) {
    Watched watch;
    watch.relay = ProcessState::Unknown;
    EXPECT_EQ(watch.step(kStart, false, true), Step::Say);
    EXPECT_EQ(watch.step(watch.due(), true, false), Step::Leave);
}

TEST(RelayWatch, AsksLessAndLessOftenWhereNobodyElseIs) {
    Watched watch;
    Instant now = kStart;
    Duration before{};
    EXPECT_EQ(watch.step(now, false, true), Step::Say);
    for (int i = 0; i < 10; ++i) {
        now = watch.due();
        EXPECT_EQ(watch.step(now, true, true), Step::Leave);
        watch.failed(now);
        EXPECT_GE(watch.due() - now, before);
        before = watch.due() - now;
    }
    EXPECT_EQ(before, RelayWatch::kLastPause);
    now = watch.due();
    EXPECT_EQ(watch.step(now, false, false), Step::Say) << "it runs again";
    EXPECT_EQ(watch.due(), now + RelayWatch::kGap);
    EXPECT_EQ(watch.step(watch.due(), false, false), Step::Wait);
    EXPECT_TRUE(watch.rests());
}

}  // namespace
}  // namespace feroce::port::relay_watch_test
