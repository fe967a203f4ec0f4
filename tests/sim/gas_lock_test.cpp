// The locks of gas/sync on simulated nodes: holders of all nodes and threads, home and away, with
// every access to a shared word as a place where others may run. A witness counts who is inside;
// planted bugs show that it can fail.
#include <gtest/gtest.h>

#include <memory>

#include "feroce/gas/sync/alock.hpp"
#include "feroce/gas/sync/mcs_lock.hpp"
#include "feroce/gas/sync/spin_lock.hpp"
#include "sim/gas_cluster.hpp"

namespace feroce::sim::gas_lock {
namespace {

using gas::ALock;
using gas::Lanes;
using gas::Mutex;
using gas::nic;
using gas::NodeId;
using gas::plain;
using gas::ptr;
using gas::Result;
using rdma::Task;

// Large enough for the line of any lock.
struct alignas(64) LockLine {
    std::uint64_t words[8] = {};
};

using Factory = std::unique_ptr<Mutex> (*)(Lanes&, ptr<LockLine>);

template <class Lock>
std::unique_ptr<Mutex> make(Lanes& lanes, ptr<LockLine> line) {
    return std::make_unique<Lock>(lanes, line.as<typename Lock::Line>());
}

std::unique_ptr<Mutex> make_reference_alock(Lanes& lanes, ptr<LockLine> line) {
    return std::make_unique<ALock>(
        lanes, line.as<ALock::Line>(),
        ALock::Options{.local_budget = 1, .remote_budget = 1, .fast_path = false});
}

std::unique_ptr<Mutex> make_tight_alock(Lanes& lanes, ptr<LockLine> line) {
    return std::make_unique<ALock>(lanes, line.as<ALock::Line>(),
                                   ALock::Options{.local_budget = 1, .remote_budget = 1});
}

struct Witness {
    int inside = 0;
    int violations = 0;
    std::uint64_t entries = 0;
    std::uint64_t exits = 0;
    std::uint64_t refused = 0;  // Of try_lock.

    void enter() {
        violations += inside++ != 0 ? 1 : 0;
        ++entries;
    }
    void leave() {
        --inside;
        ++exits;
    }
};

struct Scenario {
    Factory make;
    std::size_t nodes = 2;
    std::uint16_t threads = 1;
    int rounds = 6;
    bool tries = false;  // try_lock too.
    bool global_atomics = true;
};

// So that the lock is sometimes free and sometimes not.
Task<Result<>> think(rdma::Loop& loop, std::uint64_t microseconds) {
    co_return co_await loop.sleep(std::chrono::microseconds(microseconds));
}

Task<Result<>> use_lock(Mutex& mutex, ptr<std::uint64_t> counter, Witness& witness, bool tries) {
    if (tries) {
        const auto got = co_await mutex.try_lock();
        if (!got) co_return got.error();
        if (!*got) {
            ++witness.refused;
            const auto paused = co_await mutex.lanes().loop().sleep(std::chrono::microseconds(5));
            if (!paused) co_return paused;
            if (const auto locked = co_await mutex.lock(); !locked) co_return locked;
        }
    } else if (const auto locked = co_await mutex.lock(); !locked) {
        co_return locked;
    }
    witness.enter();
    // Not atomic: two who are inside lose one of the counts.
    const auto value = co_await mutex.lanes().read(counter);
    if (!value) co_return value.error();
    const auto written = co_await mutex.lanes().write(counter, *value + 1);
    if (!written) co_return written.error();
    witness.leave();
    co_return co_await mutex.unlock();
}

struct Outcome {
    std::uint64_t hash = 0;
    std::uint64_t counted = 0;
    std::uint64_t expected = 0;
    Witness witness;
};

Outcome run(std::uint64_t seed, const Scenario& scenario) {
    Outcome out;
    GasCluster cluster(seed, {.nodes = scenario.nodes,
                              .threads = scenario.threads,
                              .trust_global_atomics = scenario.global_atomics});
    out.expected = scenario.nodes * scenario.threads * static_cast<std::uint64_t>(scenario.rounds);
    ptr<LockLine> line;
    ptr<std::uint64_t> counter;
    out.hash = cluster.run([&](gas::Node& node, std::size_t thread) {
        if (thread == 0) {
            const auto made = node.share<LockLine>("lock");
            const auto count = node.share<std::uint64_t>("count");
            ASSERT_TRUE(made && count);
            line = *made, counter = *count;
        }
        cluster.meet();
        const auto mutex = scenario.make(node.lanes(thread), line);
        Prng random(seed << 16 | std::uint64_t(node.id()) << 8 | thread);
        for (int i = 0; i < scenario.rounds; ++i) {
            ASSERT_TRUE(node.loop(thread).run(think(node.loop(thread), random.below(40))));
            const auto done = node.loop(thread).run(
                use_lock(*mutex, counter, out.witness, scenario.tries && i % 2 == 0));
            ASSERT_TRUE(done) << done.error().why;
        }
        if (thread != 0) return;
        // The last to enter has not written its count yet.
        while (out.witness.exits < out.expected) pause();
        ASSERT_TRUE(node.barrier());
        out.counted = *node.read(counter);
        ASSERT_TRUE(node.barrier());
    });
    return out;
}

// 2 to 8 nodes with up to 3 threads each.
Scenario shape(Factory factory, std::uint64_t seed) {
    const std::size_t nodes = seed % 10 == 9 ? 8 : 2 + seed % 3;
    return {.make = factory,
            .nodes = nodes,
            .threads = static_cast<std::uint16_t>(nodes > 4 ? 1 : 1 + seed / 3 % 3),
            .tries = seed % 4 == 3,
            .global_atomics = seed % 5 != 4};
}

void expect_sound(Factory factory) {
    for (const std::uint64_t seed : seeds(20)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const Outcome out = run(seed, shape(factory, seed));
        ASSERT_EQ(out.witness.violations, 0);
        ASSERT_EQ(out.witness.entries, out.expected);
        ASSERT_EQ(out.counted, out.expected);
        if (testing::Test::HasFailure()) return;
    }
}

TEST(GasLock, Spin) {
    expect_sound(make<gas::SpinLock>);
}
TEST(GasLock, Ticket) {
    expect_sound(make<gas::TicketLock>);
}
TEST(GasLock, Mcs) {
    expect_sound(make<gas::McsLock>);
}
TEST(GasLock, ALock) {
    expect_sound(make<ALock>);
}
TEST(GasLock, ALockAsPublished) {
    expect_sound(make_reference_alock);
}
TEST(GasLock, ALockWithSmallBudgets) {
    expect_sound(make_tight_alock);
}
TEST(GasLock, Fair) {
    expect_sound(make<gas::FairLock>);
}

TEST(GasLock, EverySeedRunsTwiceTheSame) {
    for (std::uint64_t seed = 0; seed < 5; ++seed)
        EXPECT_EQ(run(seed, shape(make<ALock>, seed)).hash,
                  run(seed, shape(make<ALock>, seed)).hash);
}

// Looks, then takes: what one must not do.
class LookThenTake final : public Mutex {
public:
    using Line = gas::TicketLock::Line;
    LookThenTake(Lanes& lanes, ptr<Line> line) : Mutex(lanes), line_(line) {}
    Task<Result<>> locking() override {
        gas::Backoff backoff(lanes_);
        for (;;) {
            const auto held = co_await lanes_.read(line_.field<&Line::owner>());
            if (!held) co_return held.error();
            if (*held == 0) co_return co_await lanes_.write(line_.field<&Line::owner>(), 1);
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
        }
    }
    Task<Result<bool>> trying() override { co_return false; }
    Task<Result<>> unlocking() override {
        co_return co_await lanes_.write(line_.field<&Line::owner>(), 0);
    }

private:
    ptr<Line> line_;
};

// The WRITE of the victim is chained behind the swap, before it is known that this is the head.
Task<Result<ALock::Entry>> enter_speculatively(ALock::Turn& turn) {
    ptr<ALock::Place> guess;
    const std::uint64_t victim = ALock::kRemote;
    for (;;) {
        ptr<ALock::Place> found;
        auto step = turn.lanes->chain(turn.line.node());
        step.compare_exchange(turn.line.field<&ALock::Line::remote_tail>(), guess, turn.place,
                              found);
        step.write(turn.line.field<&ALock::Line::victim>(), victim);
        if (const auto done = co_await step; !done) co_return done.error();
        if (found == guess) co_return ALock::Entry{guess, false};
        guess = found;
    }
}

std::unique_ptr<Mutex> make_speculative(Lanes& lanes, ptr<LockLine> line) {
    return std::make_unique<ALock>(lanes, line.as<ALock::Line>(),
                                   ALock::Options{.local_budget = 5,
                                                  .remote_budget = 5,
                                                  .fast_path = false,
                                                  .enter_remote = enter_speculatively});
}

// The look at the other queue comes before the own swap.
Task<Result<ALock::Entry>> enter_looking_first(ALock::Turn& turn) {
    const auto line = co_await turn.lanes->read(turn.line);
    if (!line) co_return line.error();
    const auto before =
        co_await turn.lanes->exchange(turn.line.field<&ALock::Line::remote_tail>(), turn.place);
    if (!before) co_return before.error();
    co_return ALock::Entry{*before, !*before && !line->local_tail.load()};
}

std::unique_ptr<Mutex> make_looking_first(Lanes& lanes, ptr<LockLine> line) {
    return std::make_unique<ALock>(lanes, line.as<ALock::Line>(),
                                   ALock::Options{.enter_remote = enter_looking_first});
}

// By the witness or the count.
void expect_caught(Factory factory) {
    expect_found([factory](std::uint64_t seed) {
        const Outcome out = run(seed, {.make = factory, .nodes = 3, .threads = 2, .rounds = 20});
        return out.witness.violations > 0 || out.counted != out.expected;
    });
}

TEST(GasLockBug, LookThenTakeIsCaught) {
    expect_caught(make<LookThenTake>);
}
TEST(GasLockBug, SpeculativeVictimIsCaught) {
    expect_caught(make_speculative);
}
TEST(GasLockBug, LookingBeforeTheSwapIsCaught) {
    expect_caught(make_looking_first);
}

// What a free lock costs another node, in round trips.
TEST(GasLock, RoundTripsWhenFree) {
    const auto cost = [](Factory factory, std::uint64_t& acquire, std::uint64_t& release) {
        GasCluster cluster(1, {});
        cluster.run([&](gas::Node& node, std::size_t) {
            const auto line = node.share<LockLine>("lock");
            ASSERT_TRUE(line);
            const auto mutex = factory(node.lanes(), *line);
            for (int i = 0; node.id() == NodeId{1} && i < 3; ++i) {
                const std::uint64_t start = node.lanes().traffic().round_trips;
                ASSERT_TRUE(node.loop().run(mutex->lock()));
                const std::uint64_t held = node.lanes().traffic().round_trips;
                ASSERT_TRUE(node.loop().run(mutex->unlock()));
                acquire = held - start;
                release = node.lanes().traffic().round_trips - held;
            }
            ASSERT_TRUE(node.barrier());
        });
    };
    struct Case {
        const char* name;
        Factory make;
        std::uint64_t acquire, release;
    };
    for (const Case& c :
         {Case{"spin", make<gas::SpinLock>, 1, 1}, Case{"ticket", make<gas::TicketLock>, 1, 1},
          Case{"mcs", make<gas::McsLock>, 1, 1}, Case{"alock", make<ALock>, 1, 1},
          Case{"alock as published", make_reference_alock, 2, 1},
          Case{"fair", make<gas::FairLock>, 2, 1}}) {
        std::uint64_t acquire = 0, release = 0;
        cost(c.make, acquire, release);
        EXPECT_EQ(acquire, c.acquire) << c.name;
        EXPECT_EQ(release, c.release) << c.name;
    }
}

}  // namespace
}  // namespace feroce::sim::gas_lock
