// What is awaited in the address space can be waited for as well: .wait(), with .within() and its
// like before it, on nodes that hold what the other one wants.
#include <gtest/gtest.h>

#include <cerrno>
#include <stop_token>

#include "feroce/gas/epochs.hpp"
#include "feroce/gas/sync/alock.hpp"
#include "feroce/gas/sync/condition.hpp"
#include "feroce/gas/sync/lease_lock.hpp"
#include "feroce/gas/sync/mcs_lock.hpp"
#include "feroce/gas/sync/rw_lock.hpp"
#include "feroce/gas/sync/spin_lock.hpp"
#include "feroce/gas/sync/versioned.hpp"
#include "sim/gas_cluster.hpp"

namespace feroce::sim::gas_blocking {
namespace {

using gas::NodeId;
using namespace std::chrono_literals;

// Runs the same on two nodes: what each says it is.
template <class Body>
void on_two_nodes(Body body) {
    GasCluster cluster(11, {.nodes = 2});
    cluster.run([&](gas::Node& node, std::size_t) { body(node, node.id() == NodeId{0}); });
}

// The other node has the mutex, and gives it back.
void expect_refused(gas::Mutex& mutex) {
    rdma::Loop& loop = mutex.lanes().loop();
    EXPECT_FALSE(mutex.try_lock().wait().value());
    EXPECT_EQ(mutex.lock().within(5ms).wait().error().code, ETIMEDOUT);
    EXPECT_EQ(mutex.guard().until(loop.after(5ms)).wait().error().code, ETIMEDOUT);
    EXPECT_FALSE(mutex.lock_until(loop.after(5ms)).wait().value());
    std::stop_source stop;
    stop.request_stop();
    EXPECT_EQ(mutex.lock().with(stop.get_token()).wait().error().code, ECANCELED);
}

void expect_granted(gas::Mutex& mutex) {
    ASSERT_TRUE(mutex.lock().within(1s).wait());
    ASSERT_TRUE(mutex.unlock().wait());
    {
        auto guard = mutex.guard().wait();
        ASSERT_TRUE(guard) << guard.error().why;
        EXPECT_TRUE(guard->release().wait());
        EXPECT_TRUE(guard->release().wait());  // Nothing to release any more.
    }
    EXPECT_FALSE(mutex.unlock().wait());
    ASSERT_TRUE(mutex.try_lock().wait().value());
    ASSERT_TRUE(mutex.unlock().wait());
}

template <class Lock>
class GasBlocking : public testing::Test {};
using Locks = testing::Types<gas::SpinLock, gas::TicketLock, gas::McsLock, gas::ALock,
                             gas::FairLock, gas::LeaseLock>;
TYPED_TEST_SUITE(GasBlocking, Locks);

TYPED_TEST(GasBlocking, LocksAreWaitedFor) {
    on_two_nodes([](gas::Node& node, bool first) {
        const auto line = node.share<typename TypeParam::Line>("lock").value();
        TypeParam mutex(node.lanes(), line);
        if (first) {
            ASSERT_TRUE(mutex.lock().wait());
        }
        ASSERT_TRUE(node.barrier());
        if (!first) expect_refused(mutex);
        ASSERT_TRUE(node.barrier());
        if (first) {
            ASSERT_TRUE(mutex.unlock().wait());
        }
        ASSERT_TRUE(node.barrier());
        if (!first) expect_granted(mutex);
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasBlockingCalls, ReadersWritersAndPermits) {
    on_two_nodes([](gas::Node& node, bool first) {
        gas::RwLock lock(node.lanes(), node.share<gas::RwLock::Line>("rw").value());
        gas::Semaphore permits(node.lanes(), node.share<gas::Semaphore::Line>("permits").value());
        if (first) {
            ASSERT_TRUE(lock.lock_shared().wait());
        }
        ASSERT_TRUE(node.barrier());
        if (!first) {
            EXPECT_FALSE(lock.try_lock().wait().value());
            EXPECT_TRUE(lock.try_lock_shared().wait().value());
            EXPECT_TRUE(lock.unlock_shared().wait());
            EXPECT_EQ(lock.lock().within(5ms).wait().error().code, ETIMEDOUT);
            EXPECT_FALSE(permits.try_acquire().wait().value());
            EXPECT_EQ(permits.acquire().within(5ms).wait().error().code, ETIMEDOUT);
        }
        ASSERT_TRUE(node.barrier());
        if (first) {
            ASSERT_TRUE(lock.unlock_shared().wait());
            ASSERT_TRUE(permits.release(2).wait());
        }
        ASSERT_TRUE(node.barrier());
        if (!first) {
            EXPECT_TRUE(lock.lock().within(1s).wait());
            EXPECT_TRUE(lock.unlock().wait());
            EXPECT_TRUE(permits.acquire().within(1s).wait());
            EXPECT_TRUE(permits.try_acquire().wait().value());
        }
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasBlockingCalls, ConditionsAndEvents) {
    on_two_nodes([](gas::Node& node, bool first) {
        gas::SpinLock mutex(node.lanes(), node.share<gas::SpinLock::Line>("lock").value());
        gas::Condition changed(mutex, node.share<gas::Condition::Line>("changed").value());
        gas::Event open(node.lanes(), node.share<gas::Event::Line>("open").value());
        if (!first) {
            EXPECT_EQ(open.wait().within(5ms).wait().error().code, ETIMEDOUT);
            ASSERT_TRUE(mutex.lock().wait());
            EXPECT_EQ(changed.wait().within(5ms).wait().error().code, ETIMEDOUT);
            EXPECT_TRUE(open.set().wait());  // The other one comes for the mutex now.
            EXPECT_TRUE(changed.wait().within(10s).wait());
            EXPECT_TRUE(mutex.unlock().wait());
        } else {
            ASSERT_TRUE(open.wait().within(10s).wait());
            ASSERT_TRUE(mutex.lock().within(10s).wait());
            EXPECT_TRUE(changed.notify_one().wait());
            EXPECT_TRUE(changed.notify_all().wait());
            EXPECT_TRUE(mutex.unlock().wait());
            EXPECT_TRUE(open.reset().wait());
        }
        ASSERT_TRUE(node.barrier());
        EXPECT_EQ(open.wait().within(5ms).wait().error().code, ETIMEDOUT);
        ASSERT_TRUE(node.barrier());
    });
}

TEST(GasBlockingCalls, ValuesWordsAndMemory) {
    struct Pair {
        std::uint64_t one = 1, other = 2;
    };
    on_two_nodes([](gas::Node& node, bool first) {
        const auto cell = node.share<gas::Versioned<Pair>::Cell>("cell").value();
        const auto word = node.share<gas::nic<std::uint64_t>>("word").value();
        if (!first) {
            gas::Versioned<Pair> value(node.lanes(), cell);
            const auto turned = value.update([](Pair pair) {
                                         return Pair{pair.other, pair.one};
                                     })
                                    .wait();
            ASSERT_TRUE(turned) << turned.error().why;
            EXPECT_EQ(value.read().within(1s).wait().value().one, turned->one);
            EXPECT_EQ(node.lanes().exchange(word, std::uint64_t{7}).within(1s).wait().value(), 0u);
            EXPECT_EQ(node.lanes().exchange(word, std::uint64_t{8}).wait().value(), 7u);
            gas::Allocator& allocator = node.allocator();
            const auto made = allocator.make(NodeId{0}, Pair{3, 4}).wait();
            ASSERT_TRUE(made) << made.error().why;
            EXPECT_EQ(node.read(*made).value().other, 4u);
            EXPECT_TRUE(allocator.destroy(*made).wait());
            const auto bytes = allocator.allocate_cleared(NodeId{0}, 100).wait();
            ASSERT_TRUE(bytes);
            EXPECT_TRUE(allocator.free(*bytes, 100).wait());
            EXPECT_EQ(allocator.allocate(NodeId{0}, 1, 128).wait().error().code, EINVAL);
            EXPECT_TRUE(node.epochs().collect().within(1s).wait());
        }
        ASSERT_TRUE(node.barrier());
    });
}

}  // namespace
}  // namespace feroce::sim::gas_blocking
