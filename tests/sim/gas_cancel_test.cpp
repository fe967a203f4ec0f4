// Locks whose callers give up: an operation is stopped, or its coroutine destroyed, at each of its
// suspension points in turn, with a holder before it and somebody behind it. Afterwards nobody may
// have been inside together, whoever waits must get the lock, and no place may be taken. The points
// that were visited are printed for each operation; none is a failure.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "feroce/gas/sync/alock.hpp"
#include "feroce/gas/sync/condition.hpp"
#include "feroce/gas/sync/lease_lock.hpp"
#include "feroce/gas/sync/mcs_lock.hpp"
#include "feroce/gas/sync/rw_lock.hpp"
#include "feroce/gas/sync/spin_lock.hpp"
#include "sim/gas_giving_up.hpp"

namespace feroce::sim {
namespace {

using gas::Lanes;
using gas::Mutex;
using gas::nic;
using gas::ptr;
using gas::Result;
using rdma::Task;

struct alignas(64) LockLine {
    std::uint64_t words[8] = {};
};

std::size_t free_places(Lanes& lanes) {
    std::vector<ptr<LockLine>> taken;
    while (const auto place = lanes.take_place<LockLine>()) taken.push_back(place);
    for (const auto place : taken) lanes.give_place(place);
    return taken.size();
}

// Readers, writers and permits as mutexes.
class Writer final : public Mutex {
public:
    using Line = gas::RwLock::Line;
    Writer(Lanes& lanes, ptr<Line> line) : Mutex(lanes), lock_(lanes, line) {}
    Task<Result<>> locking() override { return lock_.lock(); }
    Task<Result<bool>> trying() override { return lock_.try_lock(); }
    Task<Result<>> unlocking() override { return lock_.unlock(); }

private:
    gas::RwLock lock_;
};

class Reader final : public Mutex {
public:
    using Line = gas::RwLock::Line;
    Reader(Lanes& lanes, ptr<Line> line) : Mutex(lanes), lock_(lanes, line) {}
    Task<Result<>> locking() override { return lock_.lock_shared(); }
    Task<Result<bool>> trying() override { return lock_.try_lock_shared(); }
    Task<Result<>> unlocking() override { return lock_.unlock_shared(); }

private:
    gas::RwLock lock_;
};

class Permit final : public Mutex {
public:
    using Line = gas::Semaphore::Line;
    Permit(Lanes& lanes, ptr<Line> line) : Mutex(lanes), semaphore_(lanes, line) {}
    Task<Result<>> locking() override { return semaphore_.acquire(); }
    Task<Result<bool>> trying() override { return semaphore_.try_acquire(); }
    Task<Result<>> unlocking() override { return semaphore_.release(); }

private:
    gas::Semaphore semaphore_;
};

using Factory = std::unique_ptr<Mutex> (*)(Lanes&, ptr<LockLine>);

template <class Lock>
std::unique_ptr<Mutex> make(Lanes& lanes, ptr<LockLine> line) {
    return std::make_unique<Lock>(lanes, line.as<typename Lock::Line>());
}

enum class Operation { Lock, LockUntil, TryLock, Unlock };

bool waits(Operation what) {
    return what == Operation::Lock || what == Operation::LockUntil;
}

struct Case {
    Factory victim, others;
    bool others_share = false;  // The others are readers.
    std::uint64_t first = 0;    // The line's first word.
};

struct Stage {
    int inside = 0, victims = 0, violations = 0;
    bool held = false, begun = false, given_up = false;
    std::size_t ended = 0;  // Of the three.
    std::size_t visited = 0;
    bool last = false;  // The point was not reached: there are no more.

    void enter(bool victim, bool shares) {
        violations += victims > 0 || (inside > 0 && (victim || !shares)) ? 1 : 0;
        (victim ? victims : inside) += 1;
    }
    void leave(bool victim) { (victim ? victims : inside) -= 1; }
};

Task<Result<>> use(Mutex& mutex, Stage& stage, bool victim, bool shares) {
    stage.enter(victim, shares);
    const auto slept = co_await mutex.lanes().loop().sleep(10us);
    stage.leave(victim);
    if (!slept) co_return slept;
    co_return co_await mutex.unlock();
}

void hold(gas::Node& node, ptr<LockLine> line, const Case& c, Stage& stage, Operation what) {
    rdma::Loop& loop = node.loop();
    const auto mutex = c.others(node.lanes(), line);
    if (!waits(what)) return;  // The victim is the first.
    ASSERT_TRUE(loop.run(mutex->lock()));
    stage.enter(false, c.others_share);
    stage.held = true;
    ASSERT_TRUE(wait_for(loop, [&] { return stage.begun; }));
    loop.run(nap(loop, 60us));
    stage.leave(false);
    ASSERT_TRUE(loop.run(mutex->unlock()));
}

void give_up(gas::Node& node, ptr<LockLine> line, const Case& c, Stage& stage, Operation what,
             std::size_t k, How how) {
    rdma::Loop& loop = node.loop();
    const std::size_t places = free_places(node.lanes());
    auto mutex = c.victim(node.lanes(), line);
    bool reached = false, won = false;
    if (waits(what)) {
        ASSERT_TRUE(wait_for(loop, [&] { return stage.held; }));
        stage.begun = true;
    }
    if (what == Operation::Lock) {
        const auto got = run_until(loop, mutex->lock(), k, how, reached);
        won = got && *got;
        expect_cancelled(got);
    } else if (what == Operation::LockUntil) {
        const auto got = run_until(loop, mutex->lock_until(loop.after(10s)), k, how, reached);
        won = got && *got && **got;
        expect_cancelled(got);
    } else if (what == Operation::TryLock) {
        const auto got = run_until(loop, mutex->try_lock(), k, how, reached);
        stage.begun = true;
        won = got && *got && **got;
        expect_cancelled(got);
    } else {
        ASSERT_TRUE(loop.run(mutex->lock()));
        stage.begun = true;
        const auto got = run_until(loop, mutex->unlock(), k, how, reached);
        EXPECT_TRUE(!got || *got) << "it ignores limits";
    }
    EXPECT_TRUE(!won || loop.run(use(*mutex, stage, true, false)));
    mutex.reset();  // What goes on needs nothing of it.
    stage.given_up = true;
    ASSERT_TRUE(wait_for(loop, [&] { return node.lanes().shelter().empty(); })) << "never ends";
    EXPECT_EQ(free_places(node.lanes()), places);
    stage.visited += reached ? 1 : 0;
    stage.last = !reached;
}

void follow(gas::Node& node, ptr<LockLine> line, const Case& c, Stage& stage) {
    rdma::Loop& loop = node.loop();
    const auto mutex = c.others(node.lanes(), line);
    ASSERT_TRUE(wait_for(loop, [&] { return stage.begun; }));
    const auto locked = loop.run(mutex->lock().until(loop.after(10s)));
    ASSERT_TRUE(locked) << "whoever comes behind gets the lock: " << locked.error().why;
    ASSERT_TRUE(loop.run(use(*mutex, stage, false, c.others_share)));
}

// All points of one operation by one order of the nodes: holder, victim, follower. Node 0 is home.
std::size_t visit(std::uint64_t seed, const Case& c, Operation what, How how,
                  const std::array<std::size_t, 3>& roles) {
    GasCluster cluster(seed, {.nodes = 3, .memory = 1 << 20});
    std::vector<Stage> stages(kPoints + 1);
    std::vector<ptr<LockLine>> lines(kPoints + 1);
    std::size_t visited = 0;
    bool all = false;
    cluster.run([&](gas::Node& node, std::size_t) {
        for (std::size_t k = 1; k <= kPoints && !testing::Test::HasFailure(); ++k) {
            Stage& stage = stages[k];
            if (static_cast<std::size_t>(node.id()) == 0) {
                LockLine first;
                first.words[0] = c.first;
                lines[k] = node.allocate(first).value();
            }
            ASSERT_TRUE(wait_for(node.loop(), [&] { return bool(lines[k]); }));
            const auto id = static_cast<std::size_t>(node.id());
            if (id == roles[0]) hold(node, lines[k], c, stage, what);
            if (id == roles[1]) give_up(node, lines[k], c, stage, what, k, how);
            if (id == roles[2]) follow(node, lines[k], c, stage);
            ++stage.ended;
            ASSERT_TRUE(wait_for(node.loop(),
                                 [&] { return stage.ended == 3 || testing::Test::HasFailure(); }));
            ASSERT_EQ(stage.violations, 0) << "point " << k;
            if (id == roles[1]) visited += stage.visited;
            all |= stage.last;
            if (stage.last) break;
        }
    });
    EXPECT_TRUE(all) << "there are more points";
    return visited;
}

void expect_no_harm(const char* name, const Case& c) {
    constexpr std::array<const char*, 4> kNames{"lock", "lock_until", "try_lock", "unlock"};
    for (const Operation what :
         {Operation::Lock, Operation::LockUntil, Operation::TryLock, Operation::Unlock})
        for (const How how : {How::Stop, How::Destroy}) {
            std::size_t points = 0;
            for (const std::array<std::size_t, 3>& roles :
                 {std::array<std::size_t, 3>{0, 1, 2}, {1, 0, 2}, {1, 2, 0}}) {
                SCOPED_TRACE(std::string(name) + " " + kNames[static_cast<std::size_t>(what)] +
                             (how == How::Stop ? " stopped" : " destroyed") + ", victim on node " +
                             std::to_string(roles[1]));
                points += visit(7, c, what, how, roles);
                if (testing::Test::HasFailure()) return;
            }
            std::printf("%-10s %-10s %-9s %4zu points\n", name,
                        kNames[static_cast<std::size_t>(what)],
                        how == How::Stop ? "stopped" : "destroyed", points);
            EXPECT_GT(points, 0u) << name;
        }
}

template <class Lock>
Case alike() {
    return {make<Lock>, make<Lock>};
}

TEST(GasCancel, Spin) {
    expect_no_harm("SpinLock", alike<gas::SpinLock>());
}
TEST(GasCancel, Ticket) {
    expect_no_harm("TicketLock", alike<gas::TicketLock>());
}
TEST(GasCancel, Mcs) {
    expect_no_harm("McsLock", alike<gas::McsLock>());
}
TEST(GasCancel, ALock) {
    expect_no_harm("ALock", alike<gas::ALock>());
}
TEST(GasCancel, Fair) {
    expect_no_harm("FairLock", alike<gas::FairLock>());
}
TEST(GasCancel, Lease) {
    expect_no_harm("LeaseLock", alike<gas::LeaseLock>());
}
TEST(GasCancel, WriterBehindWriter) {
    expect_no_harm("Writer", alike<Writer>());
}
TEST(GasCancel, WriterBehindReader) {
    expect_no_harm("Writer/r", {make<Writer>, make<Reader>, true});
}
TEST(GasCancel, ReaderBehindWriter) {
    expect_no_harm("Reader", {make<Reader>, make<Writer>});
}
TEST(GasCancel, Semaphore) {
    expect_no_harm("Semaphore", {make<Permit>, make<Permit>, false, 1});
}

// A wait for a condition that is given up at each point: the mutex is held again, and of a victim
// and one that waits behind it one notify_one wakes one.
struct Bell {
    int waiting = 0, inside = 0, violations = 0;
    bool victim_back = false, victim_told = false, follower_told = false;
    std::size_t ended = 0, visited = 0;
};

using Turnstile = gas::SpinLock;

Task<Result<>> wait_once(Turnstile& mutex, ptr<gas::Condition::Line> line, Bell& bell, bool& told) {
    if (const auto locked = co_await mutex.lock().shielded(); !locked) co_return locked;
    ++bell.waiting;
    gas::Condition condition(mutex, line);
    const auto woken = co_await condition.wait();
    bell.violations += bell.inside++ != 0 ? 1 : 0;
    told = bool(woken);
    const auto slept = co_await mutex.lanes().loop().sleep(5us).shielded();
    --bell.inside;
    if (!slept) co_return slept;
    if (const auto freed = co_await mutex.unlock(); !freed) co_return freed;  // It was held.
    co_return woken;
}

Task<Result<>> ring(Turnstile& mutex, ptr<gas::Condition::Line> line) {
    if (const auto locked = co_await mutex.lock(); !locked) co_return locked;
    gas::Condition condition(mutex, line);
    if (const auto told = co_await condition.notify_one(); !told) co_return told;
    co_return co_await mutex.unlock();
}

void wait_and_leave(gas::Node& node, Turnstile& mutex, ptr<gas::Condition::Line> line, Bell& bell,
                    std::size_t k) {
    bool reached = false;
    const auto done = run_until(node.loop(), wait_once(mutex, line, bell, bell.victim_told), k,
                                How::Stop, reached);
    ASSERT_TRUE(done);
    expect_cancelled(done);
    bell.visited += reached ? 1 : 0;
    bell.victim_back = true;
}

void notify_both(gas::Node& node, Turnstile& mutex, ptr<gas::Condition::Line> line, Bell& bell,
                 std::size_t k) {
    rdma::Loop& loop = node.loop();
    ASSERT_TRUE(wait_for(loop, [&] { return bell.waiting == 2; }));
    // Every other time when the victim has left; else at about the moment when it does.
    if (k % 2 == 0)
        loop.run(nap(loop, 2us * static_cast<int>(k % 16)));
    else
        ASSERT_TRUE(wait_for(loop, [&] { return bell.victim_back; }));
    ASSERT_TRUE(loop.run(ring(mutex, line)));
    ASSERT_TRUE(wait_for(loop, [&] { return bell.victim_back; }));
    EXPECT_TRUE(!bell.victim_told || loop.run(ring(mutex, line)));
    ASSERT_TRUE(wait_for(loop, [&] { return bell.follower_told; })) << "a wake-up was lost";
}

TEST(GasCancel, Condition) {
    struct Lines {
        Turnstile::Line mutex;
        gas::Condition::Line condition;
    };
    constexpr std::size_t kRounds = 60;
    GasCluster cluster(3, {.nodes = 3, .memory = 1 << 20});
    std::vector<Bell> bells(kRounds + 1);
    ptr<Lines> lines;
    std::size_t visited = 0, told = 0;
    cluster.run([&](gas::Node& node, std::size_t) {
        const auto id = static_cast<std::size_t>(node.id());
        if (id == 0) lines = node.allocate(Lines()).value();
        ASSERT_TRUE(wait_for(node.loop(), [&] { return bool(lines); }));
        Turnstile mutex(node.lanes(), lines.field<&Lines::mutex>());
        const auto line = lines.field<&Lines::condition>();
        for (std::size_t k = 1; k <= kRounds && !testing::Test::HasFailure(); ++k) {
            Bell& bell = bells[k];
            if (id == 0) notify_both(node, mutex, line, bell, k);
            if (id == 1) wait_and_leave(node, mutex, line, bell, k);
            if (id == 2) {
                ASSERT_TRUE(wait_for(node.loop(), [&] { return bell.waiting == 1; }));
                ASSERT_TRUE(node.loop().run(wait_once(mutex, line, bell, bell.follower_told)));
            }
            ++bell.ended;
            ASSERT_TRUE(wait_for(node.loop(),
                                 [&] { return bell.ended == 3 || testing::Test::HasFailure(); }));
            ASSERT_EQ(bell.violations, 0) << "point " << k;
        }
    });
    for (const Bell& bell : bells) visited += bell.visited, told += bell.victim_told ? 1 : 0;
    std::printf("%-10s %-8s %-9s %4zu points, told nevertheless %zu times\n", "Condition", "wait",
                "stopped", visited, told);
    EXPECT_GT(visited, 0u);
}

Task<Result<>> use_guard(Mutex& mutex) {
    const auto guard = co_await mutex.guard();
    if (!guard) co_return guard.error();
    co_return Result<>();
}

// Both are locals of one block: the handle is gone when the release crosses the network.
TEST(GasCancel, AGuardLeavesNothingToItsHandle) {
    GasCluster cluster(5, {.nodes = 2});
    cluster.run([&](gas::Node& node, std::size_t) {
        const auto line = node.share<gas::ALock::Line>("lock");
        ASSERT_TRUE(line);
        for (int i = 0; i < 10; ++i) {
            alignas(gas::ALock) std::array<unsigned char, sizeof(gas::ALock)> memory;
            auto* lock = new (memory.data()) gas::ALock(node.lanes(), *line);
            EXPECT_TRUE(node.loop().run(use_guard(*lock)));
            lock->~ALock();
            memory.fill(0x5a);
        }
        EXPECT_TRUE(wait_for(node.loop(), [&] { return node.lanes().shelter().empty(); }));
        EXPECT_EQ(free_places(node.lanes()), Lanes::kPlaces);
        ASSERT_TRUE(node.barrier());
    });
}

}  // namespace
}  // namespace feroce::sim
