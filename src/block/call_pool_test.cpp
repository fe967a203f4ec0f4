// The threads of a loop: no owner of calls and no device gets all of them.
#include "block/call_pool.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <stop_token>
#include <utility>

#include "feroce/task_group.hpp"
#include "rdma/test_until.hpp"

namespace feroce::block::call_pool_test {
namespace {

// Calls that do not return until they may.
class DeadCalls {
public:
    DeadCalls(rdma::Loop& of, CallPool& by) : loop(of), pool(by) {}

    void start(const CallOwner& owner) {
        const auto hangs = [this] {
            ++stuck;
            may_end.acquire();
            return 0;
        };
        for (std::size_t i = 0; i < kCalls; ++i) pool.run(owner, hangs, [this](int) { ++ended; });
        started += kCalls;
    }
    bool wait_for_stuck(std::size_t count) {
        return rdma::poll_until(loop, [&] { return stuck == count; });
    }
    bool let_end() {
        may_end.release(static_cast<std::ptrdiff_t>(started));
        return rdma::poll_until(loop, [&] { return ended == started; });
    }

    static constexpr std::size_t kCalls = 2 * CallPool::kShared;

    rdma::Loop& loop;
    CallPool& pool;
    std::counting_semaphore<> may_end{0};
    std::atomic<std::size_t> stuck = 0;
    std::size_t started = 0;
    std::size_t ended = 0;
};

class CallPools : public testing::Test {
protected:
    // Calls that are made one after the other, and many at a time.
    void expect_served(const CallOwner& owner) {
        std::size_t told = 0;
        const auto start = [&] {
            pool.run(
                owner, [] { return 1; },
                [&](int result) { told += static_cast<unsigned>(result); });
        };
        for (std::size_t i = 1; i <= 3; ++i) {
            start();
            ASSERT_TRUE(rdma::poll_until(loop, [&] { return told == i; }));
        }
        for (std::size_t i = 0; i < DeadCalls::kCalls; ++i) start();
        ASSERT_TRUE(rdma::poll_until(loop, [&] { return told == 3 + DeadCalls::kCalls; }));
    }

    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    const std::array<int, 4> owners{};
    CallPool pool{loop};
    DeadCalls dead{loop, pool};
};

TEST_F(CallPools, ADeadDiskLeavesThreadsToTheOthersOfItsDevice) {
    dead.start({.id = &owners[0], .device = DeviceId{1}});
    ASSERT_TRUE(dead.wait_for_stuck(CallPool::kOfOneOwner));
    expect_served({.id = &owners[1], .device = DeviceId{1}});
    EXPECT_EQ(dead.stuck, CallPool::kOfOneOwner) << "the dead one got more than its part";
    EXPECT_TRUE(dead.let_end());
}

TEST_F(CallPools, DisksOfADeadDeviceLeaveThreadsToTheOthers) {
    for (const int& owner : owners) dead.start({.id = &owner, .device = DeviceId{1}});
    ASSERT_TRUE(dead.wait_for_stuck(CallPool::kOfOneDevice));
    const int healthy = 0;
    expect_served({.id = &healthy, .device = DeviceId{2}});
    EXPECT_EQ(dead.stuck, CallPool::kOfOneDevice) << "the dead device got more than its part";
    EXPECT_TRUE(dead.let_end());
}

TEST_F(CallPools, HoweverManyDevicesAreDeadTheOthersHaveAThread) {
    constexpr std::size_t kDead = 2 * CallPool::kShared;
    const std::array<int, kDead> disks{};
    for (std::size_t i = 0; i < kDead; ++i)
        dead.start({.id = &disks[i], .device = DeviceId{1 + i}});
    // One each, and all that they share.
    ASSERT_TRUE(dead.wait_for_stuck(kDead + CallPool::kShared));
    expect_served({.id = &owners[0], .device = DeviceId{1 + kDead}});
    EXPECT_EQ(dead.stuck, kDead + CallPool::kShared);
    EXPECT_TRUE(dead.let_end());
    EXPECT_EQ(dead.stuck, dead.started);
}

TEST_F(CallPools, CallsOfUnknownDevicesStopNoOther) {
    dead.start({.alone = true});
    ASSERT_TRUE(dead.wait_for_stuck(DeadCalls::kCalls));
    expect_served({.alone = true});
    expect_served({.id = &owners[0], .device = DeviceId{1}});
    EXPECT_TRUE(dead.let_end());
}

TEST_F(CallPools, CallsOfUnknownDevicesAreBounded) {
    while (dead.started <= CallPool::kAlone) dead.start({.alone = true});
    ASSERT_TRUE(dead.wait_for_stuck(CallPool::kAlone));
    expect_served({.id = &owners[0], .device = DeviceId{1}});
    EXPECT_EQ(dead.stuck, CallPool::kAlone) << "further ones wait";
    EXPECT_TRUE(dead.let_end());
    EXPECT_EQ(dead.stuck, dead.started);
    expect_served({.alone = true});
}

rdma::Task<rdma::Result<int>> call_of(CallPool& pool, const void* id,
                                      std::function<int()> function) {
    const CallOwner owner{.id = id};
    co_return co_await pool.call(owner, std::move(function));
}

TEST_F(CallPools, ACoroutineHasTheValueOfACall) {
    EXPECT_EQ(*loop.run(call_of(pool, &owners[0], [] { return 7; })), 7);
    EXPECT_THROW((void)loop.run(call_of(pool, &owners[0], []() -> int { throw 1; })), int);
}

TEST_F(CallPools, ACallThatIsGivenUpIsMadeAllTheSame) {
    std::atomic<bool> begun = false, done = false;
    std::binary_semaphore may_end{0};
    const auto works = [&] {
        begun = true;
        may_end.acquire();
        done = true;
        return 0;
    };
    std::stop_source stop;
    rdma::TaskGroup group(loop);
    int code = 0;
    const auto wait = [&]() -> rdma::Task<void> {
        auto call = call_of(pool, &owners[0], works);
        const auto called = co_await std::move(call).with(stop.get_token());
        code = called ? 0 : called.error().code;
    };
    group.spawn(wait());
    ASSERT_TRUE(rdma::poll_until(loop, [&] { return begun.load(); }));
    stop.request_stop();
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return group.empty(); }));
    EXPECT_EQ(code, ECANCELED);
    EXPECT_FALSE(done);
    may_end.release();
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return done.load(); }));
    expect_served({.id = &owners[0]});
}

// A call that does not return. It may outlive its test.
struct StuckCall {
    std::atomic<bool> begun = false;
    std::atomic<bool> was_let = false;
    std::binary_semaphore may_end{0};
};

// Has the only pool of its loop.
rdma::Task<void> be_stuck(rdma::Loop& loop, std::shared_ptr<StuckCall> call,
                          std::weak_ptr<CallPool>& of) {
    const auto pool = CallPool::of(loop);
    of = pool;
    auto waits = [call] {
        call->begun = true;
        call->was_let = call->may_end.try_acquire_for(std::chrono::seconds(30));
        return 0;
    };
    const CallOwner owner{.alone = true};
    (void)co_await pool->call(owner, std::move(waits));
}

class GivenUpCalls : public testing::Test {
protected:
    // The coroutine is destroyed; the call goes on.
    GivenUpCalls() {
        rdma::TaskGroup group(*loop);
        group.spawn(be_stuck(*loop, call, pool));
        EXPECT_TRUE(rdma::poll_until(*loop, [&] { return call->begun.load(); }));
    }

    rdma::RealRuntime runtime;
    std::optional<rdma::Loop> loop{std::in_place, runtime};
    std::shared_ptr<StuckCall> call = std::make_shared<StuckCall>();
    std::weak_ptr<CallPool> pool;
};

TEST_F(GivenUpCalls, TheLoopDoesNotWaitForOne) {
    EXPECT_FALSE(pool.expired()) << "its end waits for the call";
    call->may_end.release();
    EXPECT_TRUE(rdma::poll_until(*loop, [&] { return pool.expired(); }));
    EXPECT_TRUE(call->was_let);
}

TEST_F(GivenUpCalls, ALoopCanEndBeforeOne) {
    loop.reset();
    loop.emplace(runtime);  // At the same address.
    {
        const auto other = CallPool::of(*loop);
        EXPECT_NE(other, pool.lock());
        EXPECT_EQ(*loop->run(call_of(*other, nullptr, [] { return 7; })), 7);
    }
    call->may_end.release();
}

// Each call waits for the next: none may be left to a thread that is busy.
TEST_F(CallPools, CallsOfOneOwnerAreMadeSideBySide) {
    const CallOwner owner{.id = &owners[0]};
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
            pool.run(owner, wait_for_next, tell);
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
