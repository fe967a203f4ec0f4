#include "process/lock.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace feroce::process {
namespace {

TEST(Lock, IsHeldByOneAtATime) {
    Lock lock;
    EXPECT_TRUE(lock.try_lock());
    EXPECT_FALSE(lock.try_lock());
    lock.unlock();
    EXPECT_TRUE(lock.try_lock());
    lock.unlock();
}

TEST(Lock, LosesNoCountAndNoSleeper) {
    constexpr int kThreads = 4;
    constexpr int kTurns = 20000;
    Lock lock;
    int count = 0;
    const auto work = [&] {
        for (int i = 0; i < kTurns; ++i) {
            const std::lock_guard guard(lock);
            ++count;
            // Held across a time slice now and then, so that others must sleep.
            if (i % 64 == 0) std::this_thread::yield();
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(count, kThreads * kTurns);
}

// What the kernel says of a thread of ours: 'S' while it sleeps. Waits until it says so.
bool falls_asleep(pid_t thread) {
    const std::string file = "/proc/self/task/" + std::to_string(thread) + "/stat";
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < give_up) {
        std::ifstream stat(file);
        std::string pid, name, state;
        if (stat >> pid >> name >> state && state == "S") return true;
        std::this_thread::yield();
    }
    return false;
}

// Of a thread that waits for the lock. Shared with it, so that a thread that is never woken can be
// left behind and the test still ends.
struct Waiter {
    Lock lock;
    std::atomic<pid_t> thread{0};
    std::promise<void> entered;
};

// Not in a thread that spins or yields: it is asleep for sure when the lock is let go, so only
// unlock() can wake it.
TEST(Lock, WakesAThreadThatSleeps) {
    for (int round = 0; round < 20; ++round) {
        auto waiter = std::make_shared<Waiter>();
        std::future<void> entered = waiter->entered.get_future();
        waiter->lock.lock();
        std::thread thread([waiter] {
            waiter->thread = ::gettid();
            const std::lock_guard guard(waiter->lock);
            waiter->entered.set_value();
        });
        thread.detach();
        while (waiter->thread == 0) std::this_thread::yield();
        ASSERT_TRUE(falls_asleep(waiter->thread)) << "it does not sleep while it waits";
        ASSERT_EQ(entered.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
        waiter->lock.unlock();
        ASSERT_EQ(entered.wait_for(std::chrono::seconds(20)), std::future_status::ready)
            << "it was not woken";
    }
}

// Two sleep, and each unlock wakes the next: the first to enter must not forget the second.
TEST(Lock, WakesAllThatSleepOneAfterTheOther) {
    auto waiter = std::make_shared<Waiter>();
    auto inside = std::make_shared<std::atomic<int>>(0);
    std::future<void> both = waiter->entered.get_future();
    waiter->lock.lock();
    for (int i = 0; i < 2; ++i) {
        waiter->thread = 0;
        std::thread([waiter, inside] {
            waiter->thread = ::gettid();
            const std::lock_guard guard(waiter->lock);
            if (++*inside == 2) waiter->entered.set_value();
        }).detach();
        while (waiter->thread == 0) std::this_thread::yield();
        ASSERT_TRUE(falls_asleep(waiter->thread));
    }
    waiter->lock.unlock();
    EXPECT_EQ(both.wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST(Lock, APollerStepsAsideForAThreadThatWaitsButNotForEver) {
    auto waiter = std::make_shared<Waiter>();
    waiter->lock.lock();
    std::thread thread([waiter] {
        waiter->thread = ::gettid();
        const std::lock_guard guard(waiter->lock);
    });
    while (waiter->thread == 0) std::this_thread::yield();
    ASSERT_TRUE(falls_asleep(waiter->thread));
    EXPECT_FALSE(waiter->lock.try_lock_to_poll());
    waiter->lock.unlock();
    thread.join();
    EXPECT_TRUE(waiter->lock.try_lock_to_poll());
    waiter->lock.unlock();
}

}  // namespace
}  // namespace feroce::process
