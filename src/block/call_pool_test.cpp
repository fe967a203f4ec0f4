// The threads of a loop: no owner of calls gets all of them.
#include "block/call_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>

#include "rdma/test_until.hpp"

namespace feroce::block::call_pool_test {
namespace {

TEST(CallPools, ADeadDiskLeavesThreadsToTheOthers) {
    rdma::RealRuntime runtime;
    rdma::Loop loop(runtime);
    std::counting_semaphore<> may_end{0};
    std::atomic<std::size_t> stuck = 0;
    std::size_t ended = 0;
    const int dead = 0, other = 0;
    constexpr std::size_t kCalls = 2 * CallPool::kThreads;
    CallPool pool(loop);
    const auto hangs = [&] {
        ++stuck;
        may_end.acquire();
        return 0;
    };
    for (std::size_t i = 0; i < kCalls; ++i)
        pool.run(&dead, hangs, [&](int result) { ended += result == 0 ? 1 : 0; });
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return stuck == CallPool::kOfOneOwner; }));
    // One after the other, and as many at a time as there are threads.
    int told = 0;
    const auto tell = [&](int result) { told += result; };
    for (int i = 1; i <= 3; ++i) {
        pool.run(
            &other, [] { return 1; }, tell);
        EXPECT_TRUE(rdma::poll_until(loop, [&] { return told == i; }));
    }
    for (std::size_t i = 0; i < kCalls; ++i)
        pool.run(
            &other, [] { return 1; }, tell);
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return told == 3 + static_cast<int>(kCalls); }));
    EXPECT_EQ(stuck, CallPool::kOfOneOwner) << "the dead one got more than its part";
    EXPECT_EQ(ended, 0u);
    may_end.release(kCalls);
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return ended == kCalls; }));
}

// Each call waits for the next: none may be left to a thread that is busy.
TEST(CallPools, CallsOfOneOwnerAreMadeSideBySide) {
    rdma::RealRuntime runtime;
    rdma::Loop loop(runtime);
    const int owner = 0;
    CallPool pool(loop);
    int told = 0;
    const auto tell = [&](int) { ++told; };
    for (int round = 0; round < 100; ++round) {
        std::counting_semaphore<> arrived{0};
        told = 0;
        constexpr int kSides = 3;
        for (int i = 0; i < kSides; ++i) {
            const auto wait_for_next = [&arrived, last = i + 1 == kSides] {
                if (!last) arrived.acquire();
                if (last) arrived.release(kSides);
                return 0;
            };
            pool.run(&owner, wait_for_next, tell);
        }
        const bool all = rdma::poll_until(loop, [&] { return told == kSides; });
        EXPECT_TRUE(all) << "in round " << round;
        if (all) continue;
        arrived.release(kSides);
        ASSERT_TRUE(rdma::poll_until(loop, [&] { return told == kSides; }));
    }
}

}  // namespace
}  // namespace feroce::block::call_pool_test
