#include "process/lock.hpp"

#include <gtest/gtest.h>

#include <mutex>
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

TEST(Lock, WakesWhoeverSlept) {
    Lock lock;
    lock.lock();
    bool entered = false;
    std::thread waiter([&] {
        const std::lock_guard guard(lock);
        entered = true;
    });
    // Long enough for it to sleep where it can; the result does not depend on it.
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    EXPECT_FALSE(entered);
    lock.unlock();
    waiter.join();
    EXPECT_TRUE(entered);
}

}  // namespace
}  // namespace feroce::process
