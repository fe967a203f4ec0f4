// Clients that die, at any moment and in the middle of anything: locks with leases are taken over,
// and containers go on, with every call that returned accounted for.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "feroce/gas/sync/alock.hpp"
#include "feroce/gas/sync/lease_lock.hpp"
#include "feroce/gas/sync/mcs_lock.hpp"
#include "feroce/gas/sync/spin_lock.hpp"
#include "gas/histories.hpp"
#include "sim/gas_cluster.hpp"

namespace feroce::sim::gas_crash {
namespace {

using gas::LeaseLock;
using gas::NodeId;
using gas::ptr;
using gas::Result;
using rdma::Task;
using test::Fifo;
using namespace std::chrono_literals;

constexpr gas::Lease kLease{.time = 20ms, .grace = 20ms};

// A cluster whose last node only computes, and dies.
class Doomed {
public:
    explicit Doomed(std::uint64_t seed)
        : options_{.nodes = 3 + seed % 2,
                   .trust_global_atomics = seed % 5 != 4,
                   .memory_nodes = 2 + seed % 2,
                   .lease = kLease},
          cluster_(seed, options_) {}

    // Runs the program on all nodes until those that live have ended it.
    template <class Program>
    void run(Program program) {
        for (std::size_t i = 0; i < options_.nodes; ++i)
            cluster_.world().node(i).start("node", [&, i] {
                auto node = gas::Node::join(cluster_.options_of(i));
                ASSERT_TRUE(node) << node.error().why;
                ASSERT_TRUE(node->barrier());
                ++met_;
                program(*node);
                if (is_doomed(*node)) sleep_for(600s);
                ++ended_;
                while (ended_ + 1 < options_.nodes) pause();
            });
        EXPECT_EQ(cluster_.world().run_all(500s), "");
        // While all that the program of the dead node refers to is still there.
        for (std::size_t i = 0; i < options_.nodes; ++i) cluster_.world().node(i).end_programs();
    }
    bool is_doomed(const gas::Node& node) const {
        return static_cast<std::size_t>(node.id()) + 1 == options_.nodes;
    }
    // From another node's program. Not before all have met: a barrier needs everybody.
    void kill() {
        while (met_ < options_.nodes) pause();
        cluster_.world().node(options_.nodes - 1).crash();
    }
    Prng& random() { return cluster_.random(); }
    std::size_t nodes() const { return options_.nodes; }

private:
    ClusterOptions options_;
    GasCluster cluster_;
    std::size_t met_ = 0;
    std::size_t ended_ = 0;
};

struct Inside {
    int now = 0;
    int violations = 0;
    std::uint64_t last_token = 0;
    int entries = 0;
    bool victim = false;  // The doomed node is inside.
    bool dead = false;    // It is that now.
};

Task<Result<>> hold_for_a_while(LeaseLock& lock, Inside& inside, bool doomed) {
    if (const auto locked = co_await lock.lock(); !locked) co_return locked;
    if (inside.dead && inside.victim) --inside.now;  // It died there.
    inside.victim = doomed;
    inside.violations += inside.now++ != 0 || lock.token() <= inside.last_token ? 1 : 0;
    inside.last_token = lock.token();
    ++inside.entries;
    for (int i = 0; i < 3; ++i) {
        const auto slept = co_await lock.lanes().loop().sleep(100us);
        if (!slept) co_return slept;
        if (const auto renewed = co_await lock.renew(); !renewed) co_return renewed;
    }
    inside.violations += lock.held() ? 0 : 1;
    inside.victim = false;
    --inside.now;
    co_return co_await lock.unlock();
}

TEST(GasCrash, ALockIsTakenOver) {
    int died_inside = 0;
    for (const std::uint64_t seed : seeds(10)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Doomed cluster(seed);
        Inside inside;
        cluster.run([&](gas::Node& node) {
            const auto line = node.share<LeaseLock::Line>("lock");
            ASSERT_TRUE(line) << line.error().why;
            LeaseLock lock(node.lanes(), *line);
            const bool doomed = cluster.is_doomed(node);
            for (int i = 0; doomed || i < 10; ++i) {
                const auto done = node.loop().run(hold_for_a_while(lock, inside, doomed));
                ASSERT_TRUE(done) << done.error().why;
                if (node.id() != NodeId{0} || i != 4) continue;
                sleep_for(Duration(cluster.random().below(500'000)));
                while (seed % 2 == 0 && !inside.victim) pause();
                cluster.kill();
                inside.dead = true;
                died_inside += inside.victim ? 1 : 0;
            }
        });
        ASSERT_EQ(inside.violations, 0);
        ASSERT_GE(inside.entries, static_cast<int>(10 * (cluster.nodes() - 1)));
        if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(died_inside, 0);
}

TEST(GasCrash, WhoIsLateIsTold) {
    GasCluster cluster(1, {.lease = kLease});
    cluster.run([&](gas::Node& node, std::size_t) {
        const auto line = node.share<LeaseLock::Line>("lock");
        ASSERT_TRUE(line);
        LeaseLock lock(node.lanes(), *line);
        if (node.id() == NodeId{0}) {
            ASSERT_TRUE(node.loop().run(lock.lock()));
            ASSERT_TRUE(node.barrier());
            sleep_for(30ms);
            EXPECT_FALSE(lock.held());
            EXPECT_EQ(node.loop().run(lock.renew()).error().code, ESTALE);
            sleep_for(30ms);
            EXPECT_EQ(node.loop().run(lock.unlock()).error().code, ESTALE);
            ASSERT_TRUE(node.loop().run(lock.lock()));
            EXPECT_GE(lock.token(), 3u);
            EXPECT_TRUE(node.loop().run(lock.unlock()));
        } else {
            ASSERT_TRUE(node.barrier());
            EXPECT_FALSE(*node.loop().run(lock.try_lock()));
            ASSERT_TRUE(node.loop().run(lock.lock()));
            EXPECT_EQ(lock.token(), 2u);
            EXPECT_TRUE(lock.held());
            ASSERT_TRUE(node.loop().run(lock.unlock()));
        }
        ASSERT_TRUE(node.barrier());
    });
}

// Which locks survive their holder: the one with a lease. Of the others nobody gets any after that,
// but who asks for one with a limit is told so when its time is over.
TEST(GasCrash, OnlyALockWithALeaseSurvivesItsHolder) {
    struct alignas(64) Line {
        std::uint64_t words[8] = {};
    };
    const auto make = [](std::size_t kind, gas::Lanes& lanes,
                         ptr<Line> line) -> std::unique_ptr<gas::Mutex> {
        switch (kind) {
            case 0:
                return std::make_unique<LeaseLock>(lanes, line.as<LeaseLock::Line>());
            case 1:
                return std::make_unique<gas::SpinLock>(lanes, line.as<gas::SpinLock::Line>());
            case 2:
                return std::make_unique<gas::TicketLock>(lanes, line.as<gas::TicketLock::Line>());
            case 3:
                return std::make_unique<gas::McsLock>(lanes, line.as<gas::McsLock::Line>());
            case 4:
                return std::make_unique<gas::ALock>(lanes, line.as<gas::ALock::Line>());
            default:
                return std::make_unique<gas::FairLock>(lanes, line.as<gas::ALock::Line>());
        }
    };
    constexpr std::size_t kKinds = 6;
    for (const std::uint64_t seed : seeds(10)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const std::size_t kind = seed % kKinds;
        Doomed cluster(seed);
        bool held = false;
        std::size_t taken = 0;
        cluster.run([&](gas::Node& node) {
            const auto line = node.share<Line>("lock");
            ASSERT_TRUE(line) << line.error().why;
            const auto mutex = make(kind, node.lanes(), *line);
            if (cluster.is_doomed(node)) {
                ASSERT_TRUE(node.loop().run(mutex->lock()));
                held = true;
                return;
            }
            while (!held) pause();
            if (node.id() == NodeId{0}) cluster.kill();
            const auto got = node.loop().run(mutex->lock_until(node.loop().after(300ms)));
            ASSERT_TRUE(got) << got.error().why;
            if (!*got) return;
            ++taken;
            ASSERT_TRUE(node.loop().run(mutex->unlock()));
        });
        EXPECT_EQ(taken, kind == 0 ? cluster.nodes() - 1 : 0u) << "kind " << kind;
        if (testing::Test::HasFailure()) return;
    }
}

// However often a lock of a lost node is asked for, the thread has places for other locks. Only the
// attempt during which the loss was found may keep one.
template <class Lock>
void ask_in_vain(gas::Node& node, ptr<typename Lock::Line> lost) {
    rdma::Loop& loop = node.loop();
    Lock lock(node.lanes(), lost);
    for (std::size_t i = 0; i < 2 * gas::Lanes::kPlaces; ++i) {
        ASSERT_FALSE(loop.run(lock.lock()));
        ASSERT_FALSE(loop.run(lock.try_lock()));
    }
    const auto line = node.allocate(typename Lock::Line{});
    ASSERT_TRUE(line) << line.error().why;
    Lock healthy(node.lanes(), *line);
    const auto got = loop.run(healthy.lock());
    ASSERT_TRUE(got) << got.error().why;
    ASSERT_TRUE(loop.run(healthy.unlock()));
}

TEST(GasCrash, LocksOfALostNodeTakeNoPlaces) {
    GasCluster cluster(3, {.nodes = 2, .lease = kLease});
    std::size_t free = 0;
    bool dead = false;
    for (std::size_t i = 0; i < 2; ++i)
        cluster.world().node(i).start("node", [&, i] {
            auto node = gas::Node::join(cluster.options_of(i));
            ASSERT_TRUE(node) << node.error().why;
            if (i == 0) {
                ASSERT_TRUE(node->publish("alock", *node->allocate(gas::ALock::Line{})));
                ASSERT_TRUE(node->publish("mcs", *node->allocate(gas::McsLock::Line{})));
            }
            const auto alock = node->find<gas::ALock::Line>("alock");
            const auto mcs = node->find<gas::McsLock::Line>("mcs");
            ASSERT_TRUE(alock && mcs && node->barrier());
            if (i == 0) {
                dead = true;
                here().crash();
                pause();
                return;
            }
            while (!dead) pause();
            ask_in_vain<gas::ALock>(*node, *alock);
            ask_in_vain<gas::FairLock>(*node, *alock);
            ask_in_vain<gas::McsLock>(*node, *mcs);
            while (node->lanes().take_place<gas::ALock::Place>()) ++free;
        });
    EXPECT_EQ(cluster.world().run_all(600s), "");
    EXPECT_GE(free + 1, gas::Lanes::kPlaces);
}

std::set<std::uint64_t> free_places(gas::Lanes& lanes) {
    std::vector<ptr<gas::ALock::Place>> taken;
    while (const auto place = lanes.take_place<gas::ALock::Place>()) taken.push_back(place);
    std::set<std::uint64_t> out;
    for (const auto place : taken) {
        out.insert(place.bits());
        lanes.give_place(place);
    }
    return out;
}

template <class Lock>
void wait_in_vain(gas::Node& node, ptr<typename Lock::Line> line, bool& waiting) {
    std::vector<std::unique_ptr<Lock>> locks;
    std::vector<Task<Result<>>> attempts;
    for (std::size_t i = 0; i < gas::Lanes::kPlaces; ++i) {
        locks.push_back(std::make_unique<Lock>(node.lanes(), line));
        attempts.push_back(locks.back()->lock());
        attempts.back().start();
    }
    const Instant queued = node.loop().after(20ms);
    const auto ended = [](const auto& attempt) { return attempt.done(); };
    while (!std::all_of(attempts.begin(), attempts.end(), ended)) {
        node.loop().poll_or_wait(node.loop().after(1ms));
        waiting = waiting || node.loop().now() >= queued;
    }
    for (auto& attempt : attempts) EXPECT_FALSE(attempt.await_resume());
}

// All places of a thread are in the queue of a lock whose home dies. It has as many for other locks
// then, and none of those: others of that queue may still write them.
template <class Lock>
void lose_all_places(std::uint64_t seed) {
    using Line = typename Lock::Line;
    GasCluster cluster(seed, {.nodes = 2, .lease = kLease});
    bool waiting = false, ended = false;
    for (std::size_t i = 0; i < 2; ++i)
        cluster.world().node(i).start("node", [&, i] {
            auto node = gas::Node::join(cluster.options_of(i));
            ASSERT_TRUE(node) << node.error().why;
            if (i == 0) {
                ASSERT_TRUE(node->publish("line", *node->allocate(Line{})));
            }
            const auto line = node->template find<Line>("line");
            ASSERT_TRUE(line) << line.error().why;
            Lock held(node->lanes(), *line);
            if (i == 0) {
                ASSERT_TRUE(node->loop().run(held.lock()));
            }
            ASSERT_TRUE(node->barrier());
            if (i == 0) {
                while (!waiting) pause();
                here().crash();
                pause();
                return;
            }
            const auto before = free_places(node->lanes());
            wait_in_vain<Lock>(*node, *line, waiting);
            const auto after = free_places(node->lanes());
            EXPECT_EQ(after.size(), gas::Lanes::kPlaces);
            for (const std::uint64_t place : before) EXPECT_EQ(after.count(place), 0u);
            ended = true;
        });
    EXPECT_EQ(cluster.world().run_all(600s), "");
    cluster.world().node(0).end_programs();
    EXPECT_TRUE(ended);
}

TEST(GasCrash, PlacesInTheQueueOfALostNodeAreReplaced) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        lose_all_places<gas::ALock>(seed);
        lose_all_places<gas::McsLock>(seed);
    }
}

// A thread that died while it was pinned stops the freeing for the time of its lease only.
TEST(GasCrash, ADeadPinIsNotWaitedFor) {
    for (const std::uint64_t seed : seeds(10)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Doomed cluster(seed);
        bool pinned = false;
        cluster.run([&](gas::Node& node) {
            gas::Epochs& epochs = node.epochs();
            if (cluster.is_doomed(node)) {
                const gas::Epochs::Pin pin = epochs.pin();
                pinned = true;
                sleep_for(600s);
            }
            while (!pinned) pause();
            epochs.retire(*node.allocate(std::uint64_t{1}));
            for (int i = 0; i < 5; ++i) ASSERT_TRUE(node.loop().run(epochs.collect()));
            EXPECT_EQ(epochs.retired(), 1u);
            if (node.id() == NodeId{0}) cluster.kill();
            const Instant limit = node.loop().after(60s);
            while (epochs.retired() != 0 && node.loop().now() < limit) {
                ASSERT_TRUE(node.loop().run(epochs.collect()));
                sleep_for(5ms);
            }
            EXPECT_EQ(epochs.retired(), 0u);
        });
        if (testing::Test::HasFailure()) return;
    }
}

// One that lives but was stopped for longer is told, before it changes anything.
TEST(GasCrash, APinThatLastedTooLongIsStale) {
    GasCluster cluster(2, {.lease = kLease});
    bool stopped = false, freed = false;
    cluster.run([&](gas::Node& node, std::size_t) {
        gas::Epochs& epochs = node.epochs();
        if (node.id() == NodeId{0}) {
            const gas::Epochs::Pin pin = epochs.pin();
            EXPECT_TRUE(pin.check());
            stopped = true;
            while (!freed) sleep_for(1ms);
            EXPECT_EQ(pin.check().error().code, ESTALE);
        } else {
            while (!stopped) pause();
            const Instant start = node.loop().now();
            epochs.retire(*node.allocate(std::uint64_t{1}));
            while (epochs.retired() != 0) {
                ASSERT_TRUE(node.loop().run(epochs.collect()));
                sleep_for(1ms);
            }
            EXPECT_GE(node.loop().now() - start, kLease.time + kLease.grace);
            freed = true;
        }
        ASSERT_TRUE(node.barrier());
        EXPECT_TRUE(epochs.pin().check());
    });
}

template <class M>
void expect_linearizable_with_a_crash() {
    for (const std::uint64_t seed : seeds(10)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Doomed cluster(seed);
        std::uint64_t now = 0;
        test::Recorder<MapCall> recorder;
        recorder.clock = [&] { return ++now; };
        recorder.random = Prng(seed);
        recorder.keys = 12;
        constexpr M* kOf = nullptr;
        cluster.run([&](gas::Node& node) {
            if (node.id() == NodeId{0}) {
                const auto made = test::create(node, kOf);
                ASSERT_TRUE(made && node.publish("map", *made));
            }
            auto map = test::open(node, *node.find<typename M::Root>("map"), 0, kOf);
            ASSERT_TRUE(map) << map.error().why;
            const bool doomed = cluster.is_doomed(node);
            for (int i = 0; i < (doomed ? 40 : 2); ++i) {
                const auto done = node.loop().run(test::use(*map, recorder, doomed ? 4 : 20));
                ASSERT_TRUE(done) << done.error().why;
                if (node.id() != NodeId{0} || i != 0) continue;
                sleep_for(Duration(cluster.random().below(50'000)));
                cluster.kill();
            }
        });
        const auto bad = not_linearizable(recorder.calls);
        ASSERT_FALSE(bad) << "key " << *bad;
        if (testing::Test::HasFailure()) return;
    }
}

TEST(GasCrash, AHashMapGoesOn) {
    expect_linearizable_with_a_crash<test::Map>();
}
TEST(GasCrash, AnOrderedMapGoesOn) {
    expect_linearizable_with_a_crash<test::Tree>();
}
TEST(GasCrash, AListSetGoesOn) {
    expect_linearizable_with_a_crash<test::SetAsMap>();
}

TEST(GasCrash, AQueueGoesOn) {
    for (const std::uint64_t seed : seeds(10)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Doomed cluster(seed);
        std::uint64_t now = 0;
        test::Recorder<QueueCall> recorder;
        recorder.clock = [&] { return ++now; };
        recorder.random = Prng(seed);
        cluster.run([&](gas::Node& node) {
            if (node.id() == NodeId{0}) {
                const auto made = Fifo::create(node);
                ASSERT_TRUE(made && node.publish("queue", *made));
            }
            Fifo queue(node, *node.find<Fifo::Root>("queue"));
            const auto who = static_cast<std::uint64_t>(node.id()) * 2;
            for (std::uint64_t i = 0; i < 2; ++i) {
                const auto done = node.loop().run(test::use_queue(queue, recorder, 6, who + i + 1));
                ASSERT_TRUE(done) << done.error().why;
                if (node.id() != NodeId{0} || i != 0) continue;
                sleep_for(Duration(cluster.random().below(20'000)));
                cluster.kill();
            }
        });
        ASSERT_TRUE(linearizable(recorder.calls));
        if (testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace feroce::sim::gas_crash
