// One handle that many tasks of a thread use at the same time, as tasks of other nodes do with
// handles of theirs: every call is right, as if each task had a handle of its own.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "feroce/gas/ds/list_set.hpp"
#include "feroce/gas/ds/queue.hpp"
#include "feroce/gas/sync/alock.hpp"
#include "feroce/gas/sync/lease_lock.hpp"
#include "feroce/gas/sync/mcs_lock.hpp"
#include "feroce/gas/sync/spin_lock.hpp"
#include "feroce/task_group.hpp"
#include "sim/gas_cluster.hpp"

namespace feroce::sim::gas_handles {
namespace {

using gas::Mutex;
using gas::NodeId;
using gas::ptr;
using gas::Result;
using rdma::Task;
using Set = gas::ListSet<std::uint64_t>;
using Fifo = gas::Queue<std::uint64_t>;
using namespace std::chrono_literals;

constexpr std::size_t kHeap = 1 << 20;
constexpr std::uint64_t kTasks = 6;  // Of a node.
constexpr int kRounds = 8;           // Of a task.

struct Judge {
    int inside = 0, entered = 0, together = 0, refused = 0;
};

enum class Way { Lock, TryLock, LockUntil };

Task<Result<bool>> take(Mutex& mutex, Way way) {
    if (way == Way::TryLock) co_return co_await mutex.try_lock();
    if (way == Way::LockUntil)
        co_return co_await mutex.lock_until(mutex.lanes().loop().after(20us));
    const auto locked = co_await mutex.lock();
    if (!locked) co_return locked.error();
    co_return true;
}

// Until it has been inside as often as it should.
Task<void> come_and_go(Mutex& mutex, Way way, Judge& judge) {
    rdma::Loop& loop = mutex.lanes().loop();
    for (int rounds = 0; rounds < kRounds;) {
        const auto taken = co_await take(mutex, way);
        if (!taken) co_return;
        if (*taken) {
            judge.together += judge.inside++ == 0 ? 0 : 1;
            static_cast<void>(co_await loop.sleep(3us).shielded());
            --judge.inside;
            ++judge.entered;
            judge.refused += co_await mutex.unlock() ? 0 : 1;
            ++rounds;
        }
        if (const auto slept = co_await loop.sleep(5us); !slept) co_return;
    }
}

template <class Lock>
void expect_one_at_a_time() {
    GasCluster cluster(12, {.nodes = 2, .memory = kHeap});
    Judge judge;
    cluster.run([&](gas::Node& node, std::size_t) {
        Lock lock(node.lanes(), node.share<typename Lock::Line>("lock").value());
        ASSERT_TRUE(node.barrier());
        const Instant end = node.loop().after(1s);
        rdma::TaskGroup group(node.loop());
        for (std::uint64_t i = 0; i < kTasks; ++i)
            group.spawn(come_and_go(lock, static_cast<Way>(i % 3), judge).until(end));
        ASSERT_TRUE(node.loop().run(group.join()));
        ASSERT_TRUE(node.barrier());
    });
    EXPECT_EQ(judge.together, 0);
    EXPECT_EQ(judge.refused, 0) << "who is inside may unlock";
    EXPECT_EQ(judge.entered, static_cast<int>(2 * kTasks) * kRounds);
}

TEST(GasHandles, ManyTasksUseOneSpinLock) {
    expect_one_at_a_time<gas::SpinLock>();
}

TEST(GasHandles, ManyTasksUseOneTicketLock) {
    expect_one_at_a_time<gas::TicketLock>();
}

TEST(GasHandles, ManyTasksUseOneMcsLock) {
    expect_one_at_a_time<gas::McsLock>();
}

TEST(GasHandles, ManyTasksUseOneALock) {
    expect_one_at_a_time<gas::ALock>();
}

TEST(GasHandles, ManyTasksUseOneFairLock) {
    expect_one_at_a_time<gas::FairLock>();
}

TEST(GasHandles, ManyTasksUseOneLeaseLock) {
    expect_one_at_a_time<gas::LeaseLock>();
}

// The same without other tasks: a look that finds the lock held by its own handle takes nothing
// from it.
TEST(GasHandles, ATryThatFailsKeepsTheLock) {
    GasCluster cluster(13, {.nodes = 2, .memory = kHeap});
    cluster.run([&](gas::Node& node, std::size_t) {
        rdma::Loop& loop = node.loop();
        gas::ALock lock(node.lanes(), node.allocate(gas::ALock::Line()).value());
        ASSERT_TRUE(loop.run(lock.lock()));
        EXPECT_EQ(loop.run(lock.try_lock()).value(), false);
        EXPECT_EQ(loop.run(lock.lock_until(loop.after(10us))).value(), false);
        EXPECT_TRUE(loop.run(lock.unlock())) << "it is held";
        EXPECT_EQ(loop.run(lock.try_lock()).value(), true);
        EXPECT_TRUE(loop.run(lock.unlock()));
        EXPECT_EQ(loop.run(lock.unlock()).error().code, EPERM);
        ASSERT_TRUE(node.barrier());
    });
}

Task<void> push_and_pop(Fifo& fifo, std::uint64_t first, std::vector<std::uint64_t>& popped,
                        int& wrong) {
    for (std::uint64_t i = 0; i < kRounds; ++i) {
        wrong += co_await fifo.push(first + i) ? 0 : 1;
        const auto got = co_await fifo.pop();
        wrong += got && *got ? 0 : 1;
        if (got && *got) popped.push_back(**got);
    }
}

TEST(GasHandles, ManyTasksUseOneQueue) {
    GasCluster cluster(14, {.nodes = 3, .memory = kHeap});
    std::vector<std::uint64_t> popped;
    cluster.run([&](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{0}) {
            ASSERT_TRUE(node.publish("fifo", Fifo::create(node).value()));
        }
        Fifo fifo(node, node.find<Fifo::Root>("fifo").value());
        int wrong = 0;
        rdma::TaskGroup group(node.loop());
        for (std::uint64_t i = 0; i < kTasks; ++i) {
            const auto first = (static_cast<std::uint64_t>(node.id()) * kTasks + i) * kRounds;
            group.spawn(push_and_pop(fifo, first, popped, wrong));
        }
        ASSERT_TRUE(node.loop().run(group.join()));
        EXPECT_EQ(wrong, 0);
        ASSERT_TRUE(node.barrier());
        EXPECT_EQ(node.loop().run(fifo.pop()).value(), std::nullopt);
        ASSERT_TRUE(node.barrier());
    });
    const std::set<std::uint64_t> distinct(popped.begin(), popped.end());
    EXPECT_EQ(popped.size(), 3 * kTasks * kRounds);
    EXPECT_EQ(distinct.size(), popped.size());
    EXPECT_EQ(*distinct.rbegin(), popped.size() - 1);
}

Task<void> insert_and_erase(Set& set, std::uint64_t key, int& wrong) {
    for (int i = 0; i < kRounds; ++i) {
        const auto inserted = co_await set.insert(key);
        const auto found = co_await set.contains(key);
        const auto again = co_await set.insert(key);
        const auto erased = co_await set.erase(key);
        const auto gone = co_await set.contains(key);
        wrong += inserted && *inserted && found && *found && again && !*again ? 0 : 1;
        wrong += erased && *erased && gone && !*gone ? 0 : 1;
    }
}

TEST(GasHandles, ManyTasksUseOneListSet) {
    GasCluster cluster(15, {.nodes = 3, .memory = kHeap});
    cluster.run([&](gas::Node& node, std::size_t) {
        if (node.id() == NodeId{0}) {
            ASSERT_TRUE(node.publish("set", Set::create(node).value()));
        }
        Set set(node, node.find<Set::Item>("set").value());
        int wrong = 0;
        rdma::TaskGroup group(node.loop());
        for (std::uint64_t i = 0; i < kTasks; ++i)
            group.spawn(
                insert_and_erase(set, i * 3 + static_cast<std::uint64_t>(node.id()), wrong));
        ASSERT_TRUE(node.loop().run(group.join()));
        EXPECT_EQ(wrong, 0);
        ASSERT_TRUE(node.barrier());
    });
}

}  // namespace
}  // namespace feroce::sim::gas_handles
