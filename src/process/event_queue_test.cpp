#include "process/event_queue.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

namespace feroce::process {
namespace {

class EventQueueTest : public testing::Test {
protected:
    void SetUp() override {
        ASSERT_TRUE(queue.open());
        ::fcntl(queue.fd(), F_SETFL, O_NONBLOCK);
    }
    int next() {  // 0 if there is none.
        int event = 0;
        return queue.take(queue.fd(), event) ? event : 0;
    }

    EventQueue<int> queue;
    EventQueue<int>::AccountFor<40> one;
    EventQueue<int>::AccountFor<2> two;
};

TEST_F(EventQueueTest, OldestFirst) {
    EXPECT_EQ(next(), 0);
    EXPECT_EQ(errno, EAGAIN);
    for (int i = 1; i <= 40; ++i) queue.post(i, &one);
    for (int i = 1; i <= 40; ++i) EXPECT_EQ(next(), i);
    EXPECT_EQ(next(), 0);
    queue.post(41, nullptr);
    EXPECT_EQ(next(), 41);
}

TEST_F(EventQueueTest, WhatIsToldAgainIsCounted) {
    queue.post(1, &two);
    queue.post(2, &two);
    for (int i = 0; i < 1000; ++i) queue.post(1, &two);
    // The last thing told is the last thing heard: a port that went down, up and down is down.
    EXPECT_EQ(next(), 2);
    for (int i = 0; i <= 1000; ++i) EXPECT_EQ(next(), 1);
    EXPECT_EQ(next(), 0);
    queue.post(3, &two);
    queue.post(4, &one);
    EXPECT_EQ(next(), 3);
    queue.acknowledge(two, 1003);
    Undisturbed call;
    queue.settle(call, two);
    EXPECT_EQ(next(), 4);
}

TEST_F(EventQueueTest, SettlingDropsWhatNobodyFetched) {
    queue.post(1, &one);
    queue.post(2, &two);
    queue.post(3, &one);
    Undisturbed call;
    queue.settle(call, one);
    queue.post(4, nullptr);
    EXPECT_EQ(next(), 2);
    EXPECT_EQ(next(), 4);
    EXPECT_EQ(next(), 0) << "and the descriptor is no longer readable";
}

TEST_F(EventQueueTest, SettlingWaitsForAcknowledgements) {
    queue.post(1, &one);
    queue.post(2, &one);
    EXPECT_EQ(next(), 1);
    EXPECT_EQ(next(), 2);
    queue.acknowledge(one, 1);
    std::atomic<bool> acknowledged{false};
    bool was_acknowledged = false;
    std::thread destroyer([&] {
        Undisturbed call;
        queue.settle(call, one);
        was_acknowledged = acknowledged.load();
    });
    acknowledged.store(true);
    queue.acknowledge(one, 1);
    destroyer.join();
    EXPECT_TRUE(was_acknowledged);
}

// A thread took the count and was cancelled before it took the event: others are told of it.
TEST_F(EventQueueTest, AReaderThatGoesAwayTakesOnlyACountWithIt) {
    EventCounter counter;
    ASSERT_TRUE(counter.open().has_value());
    ::fcntl(counter.fd(), F_SETFL, O_NONBLOCK);
    counter.post();
    counter.post();
    counter.reader_begins();
    ASSERT_GT(take_event(counter.fd()), 0u);
    counter.taken(0, true);
    const std::uint64_t again = take_event(counter.fd());
    EXPECT_GT(again, 0u) << "an event is left, and nobody would know";
    counter.post();
    EXPECT_GT(take_event(counter.fd()), 0u) << "nor of the next one";
}

bool is_readable(const EventCounter& counter) {
    pollfd polled{counter.fd(), POLLIN, 0};
    return ::poll(&polled, 1, 0) == 1;
}

TEST(EventCounter, IsReadableWhileEventsWait) {
    EventCounter counter;
    ASSERT_TRUE(counter.open().has_value());
    EXPECT_FALSE(is_readable(counter));
    for (int i = 0; i < 3; ++i) counter.post();
    counter.taken(0, true);
    counter.taken(0, true);
    EXPECT_TRUE(is_readable(counter));
    counter.taken(0, false);
    EXPECT_FALSE(is_readable(counter));
    counter.post();
    EXPECT_TRUE(is_readable(counter));
    counter.dropped(true);
    EXPECT_TRUE(is_readable(counter));
    counter.dropped(false);
    EXPECT_FALSE(is_readable(counter));
}

// A program that waits for edges and takes one event for each.
TEST(EventCounter, AnEventAfterOneThatWasTakenGivesAnEdge) {
    EventCounter counter;
    ASSERT_TRUE(counter.open());
    const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
    ASSERT_GE(epoll, 0);
    epoll_event wanted{};
    wanted.events = EPOLLIN | EPOLLET;
    ASSERT_EQ(::epoll_ctl(epoll, EPOLL_CTL_ADD, counter.fd(), &wanted), 0);
    const auto edges = [epoll] {
        epoll_event seen{};
        return ::epoll_wait(epoll, &seen, 1, 0);
    };
    counter.post();
    counter.post();
    EXPECT_EQ(edges(), 1);
    counter.taken(0, true);
    EXPECT_EQ(edges(), 0);
    counter.post();
    EXPECT_EQ(edges(), 1);
    ::close(epoll);
}

TEST(EventCounter, AReaderThatTookAllCountsLeavesTheRestAnnounced) {
    EventCounter counter;
    ASSERT_TRUE(counter.open().has_value());
    counter.reader_begins();
    for (int i = 0; i < 3; ++i) counter.post();
    const std::uint64_t count = take_event(counter.fd());
    EXPECT_EQ(count, 3u) << "while somebody waits each is written";
    counter.taken(count, true);
    counter.reader_ends();
    EXPECT_TRUE(is_readable(counter));
    counter.taken(0, true);
    counter.taken(0, false);
    EXPECT_FALSE(is_readable(counter));
}

TEST(EventCounter, AReaderThatCameTooLateLeavesNothingBehind) {
    EventCounter counter;
    ASSERT_TRUE(counter.open().has_value());
    counter.post();
    counter.reader_begins();
    const std::uint64_t count = take_event(counter.fd());
    counter.taken(0, false);  // Another thread was faster.
    counter.post();
    counter.was_read(count);
    EXPECT_TRUE(is_readable(counter)) << "of the second event";
    counter.taken(0, false);
    EXPECT_FALSE(is_readable(counter));
}

TEST_F(EventQueueTest, AClosedQueueHasNoDescriptorAndTouchesNobodyElses) {
    const int old = queue.fd();
    queue.close();
    EXPECT_EQ(queue.fd(), -1);
    EXPECT_EQ(::fcntl(old, F_GETFD), -1);
    EventQueue<int> other;
    ASSERT_TRUE(other.open());  // Has the numbers now.
    queue.post(1, &one);
    ::fcntl(other.fd(), F_SETFL, O_NONBLOCK);
    int event = 0;
    EXPECT_FALSE(other.take(other.fd(), event));
    Undisturbed call;
    queue.settle(call, one);
}

}  // namespace
}  // namespace feroce::process
