// Locks whose callers give up: an operation is stopped, or its coroutine destroyed, at each of its
// suspension points in turn, with a holder before it and somebody behind it. Afterwards nobody may
// have been inside together, whoever waits must get the lock, and no place may be taken. Containers
// likewise: no lock is left, nothing is lost, and what was stopped was done or not, as it said. The
// points that were visited are printed for each operation; none is a failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/ds/list_set.hpp"
#include "feroce/gas/ds/ordered_map.hpp"
#include "feroce/gas/ds/queue.hpp"
#include "feroce/gas/sync/alock.hpp"
#include "feroce/gas/sync/condition.hpp"
#include "feroce/gas/sync/lease_lock.hpp"
#include "feroce/gas/sync/mcs_lock.hpp"
#include "feroce/gas/sync/rw_lock.hpp"
#include "feroce/gas/sync/spin_lock.hpp"
#include "sim/gas_cluster.hpp"

namespace feroce::sim {
namespace {

using namespace std::chrono_literals;
using gas::Lanes;
using gas::Mutex;
using gas::nic;
using gas::ptr;
using gas::Result;
using rdma::Task;

struct alignas(64) LockLine {
    std::uint64_t words[8] = {};
};

// The k-th time that something waits on a loop. One at a time.
class Point {
public:
    Point(rdma::Loop& loop, std::size_t k, std::function<void()> then)
        : loop_(loop), k_(k), then_(std::move(then)) {
        current = this;
        rdma::detail::at_suspension = [](rdma::Suspension& waiting) {
            if (current != nullptr && &waiting.loop() == &current->loop_) current->pass();
        };
    }
    ~Point() {
        rdma::detail::at_suspension = nullptr;
        current = nullptr;
    }
    Point(const Point&) = delete;
    Point& operator=(const Point&) = delete;

    bool reached() const { return passed_ >= k_; }

private:
    void pass() {
        if (++passed_ == k_) then_();
    }

    static inline Point* current = nullptr;
    rdma::Loop& loop_;
    std::size_t k_;
    std::function<void()> then_;
    std::size_t passed_ = 0;
};

enum class How { Stop, Destroy };

template <class T>
Task<void> keep(Task<T> task, std::optional<T>& into) {
    into = co_await std::move(task);
}

// Runs the task and gives it up at its k-th point. Nothing: it was destroyed.
template <class T>
std::optional<T> run_until(rdma::Loop& loop, Task<T> task, std::size_t k, How how, bool& reached) {
    std::stop_source source;
    bool destroy = false;
    const Point point(loop, k, [&] {
        if (how == How::Stop) source.request_stop();
        destroy = how == How::Destroy;
    });
    std::optional<T> out;
    {
        rdma::TaskGroup group(loop);
        group.spawn(keep(std::move(task).with(source.get_token()), out));
        while (!group.empty() && !destroy) loop.poll_or_wait();
    }
    reached = point.reached();
    return out;
}

// If there is an error it is that of the stop.
template <class T>
void expect_cancelled(const std::optional<Result<T>>& outcome) {
    const int code = !outcome || *outcome ? ECANCELED : outcome->error().code;
    EXPECT_EQ(code, ECANCELED);
}

Task<void> nap(rdma::Loop& loop, Duration time) {
    static_cast<void>(co_await loop.sleep(time));
}

// The loop runs while its thread waits for others.
template <class Condition>
bool wait_for(rdma::Loop& loop, Condition condition) {
    for (const Instant end = loop.after(20s); !condition();) {
        if (loop.now() > end) return false;
        loop.run(nap(loop, 5us));
    }
    return true;
}

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
    Task<Result<>> lock() override { return lock_.lock(); }
    Task<Result<bool>> try_lock() override { return lock_.try_lock(); }
    Task<Result<>> unlock() override { return lock_.unlock(); }

private:
    gas::RwLock lock_;
};

class Reader final : public Mutex {
public:
    using Line = gas::RwLock::Line;
    Reader(Lanes& lanes, ptr<Line> line) : Mutex(lanes), lock_(lanes, line) {}
    Task<Result<>> lock() override { return lock_.lock_shared(); }
    Task<Result<bool>> try_lock() override { return lock_.try_lock_shared(); }
    Task<Result<>> unlock() override { return lock_.unlock_shared(); }

private:
    gas::RwLock lock_;
};

class Permit final : public Mutex {
public:
    using Line = gas::Semaphore::Line;
    Permit(Lanes& lanes, ptr<Line> line) : Mutex(lanes), semaphore_(lanes, line) {}
    Task<Result<>> lock() override { return semaphore_.acquire(); }
    Task<Result<bool>> try_lock() override { return semaphore_.try_acquire(); }
    Task<Result<>> unlock() override { return semaphore_.release(); }

private:
    gas::Semaphore semaphore_;
};

using Factory = std::unique_ptr<Mutex> (*)(Lanes&, ptr<LockLine>);

template <class Lock>
std::unique_ptr<Mutex> make(Lanes& lanes, ptr<LockLine> line) {
    return std::make_unique<Lock>(lanes, line.as<typename Lock::Line>());
}

enum class Operation { Lock, TryLock, Unlock };

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
    if (what != Operation::Lock) return;  // The victim is the first.
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
    if (what == Operation::Lock) {
        ASSERT_TRUE(wait_for(loop, [&] { return stage.held; }));
        stage.begun = true;
        const auto got = run_until(loop, mutex->lock(), k, how, reached);
        won = got && *got;
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

constexpr std::size_t kPoints = 120;

// All points of one operation by one order of the nodes: holder, victim, follower. Node 0 is home.
std::size_t visit(std::uint64_t seed, const Case& c, Operation what, How how,
                  const std::array<std::size_t, 3>& roles) {
    GasCluster cluster(seed, {.nodes = 3, .memory = 1 << 20});
    std::vector<Stage> stages(kPoints + 1);
    std::vector<ptr<LockLine>> lines(kPoints + 1);
    std::size_t visited = 0;
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
            if (stage.last) break;
        }
    });
    return visited;
}

void expect_no_harm(const char* name, const Case& c) {
    constexpr std::array<const char*, 3> kNames{"lock", "try_lock", "unlock"};
    for (const Operation what : {Operation::Lock, Operation::TryLock, Operation::Unlock})
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
            std::printf("%-10s %-8s %-9s %4zu points\n", name,
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

using Table = gas::HashMap<std::uint64_t, std::uint64_t>;
using Ordered = gas::OrderedMap<std::uint64_t, std::uint64_t>;
using Fifo = gas::Queue<std::uint64_t>;
using Set = gas::ListSet<std::uint64_t>;

constexpr gas::Lease kLease{.time = 2s, .grace = 2s};
constexpr std::uint64_t kOther = 1000;  // The key of who disturbs.

struct Trial {
    bool given_up = false, last = false;
    std::optional<bool> done;  // What the operation said; nothing if it was destroyed before.
    std::size_t ended = 0, visited = 0;
};

// Everything is on node 0, which makes it and changes another key of it all the while. Node 1 gives
// up an operation at its k-th point. Node 2 says whether it was done, and has to meet no lock.
template <class Handle>
struct Scene {
    using Root = typename Handle::Root;
    const char* name;
    ptr<Root> (*create)(gas::Node&);
    Handle (*open)(gas::Node&, ptr<Root>);
    void (*disturb)(Handle&, std::uint64_t count);
};

template <class Handle, class Operate, class Done>
void play(gas::Node& node, const Scene<Handle>& scene, Handle handle, Trial& trial, std::size_t k,
          How how, Operate operate, Done done) {
    rdma::Loop& loop = node.loop();
    const auto id = static_cast<std::size_t>(node.id());
    for (std::uint64_t i = 0; id == 0 && !trial.given_up; ++i) {
        scene.disturb(handle, i);
        loop.run(nap(loop, 3us));
    }
    if (id == 1) {
        std::optional<Handle> own(std::move(handle));
        bool reached = false;
        const auto outcome = run_until(loop, operate(*own), k, how, reached);
        expect_cancelled(outcome);
        if (outcome) trial.done = bool(*outcome);
        own.reset();  // What goes on needs nothing of it.
        EXPECT_TRUE(wait_for(loop, [&] {
            return node.lanes().shelter().empty() && node.epochs().shelter().empty();
        })) << "never ends";
        trial.visited = reached ? 1 : 0;
        trial.last = !reached;
        trial.given_up = true;
    }
    if (id == 2) {
        ASSERT_TRUE(wait_for(loop, [&] { return trial.given_up; }));
        const Instant start = loop.now();
        const bool was_done = done(handle);
        EXPECT_LT(loop.now() - start, kLease.time) << "a lock was left, point " << k;
        if (trial.done) {
            EXPECT_EQ(was_done, *trial.done) << "point " << k;
        }
    }
}

template <class Handle, class Operate, class Done>
std::size_t visit(const Scene<Handle>& scene, How how, Operate operate, Done done) {
    GasCluster cluster(11, {.nodes = 3, .memory = 4 << 20, .memory_nodes = 1, .lease = kLease});
    std::vector<ptr<typename Handle::Root>> roots(kPoints + 1);
    std::vector<Trial> trials(kPoints + 1);
    cluster.run([&](gas::Node& node, std::size_t) {
        for (std::size_t k = 1; k <= kPoints && !testing::Test::HasFailure(); ++k) {
            Trial& trial = trials[k];
            if (node.id() == gas::NodeId{0}) roots[k] = scene.create(node);
            ASSERT_TRUE(wait_for(node.loop(), [&] { return bool(roots[k]); }));
            play(node, scene, scene.open(node, roots[k]), trial, k, how, operate, done);
            ++trial.ended;
            ASSERT_TRUE(wait_for(node.loop(),
                                 [&] { return trial.ended == 3 || testing::Test::HasFailure(); }));
            if (trial.last) break;
        }
    });
    std::size_t visited = 0;
    for (const Trial& trial : trials) visited += trial.visited;
    return visited;
}

// `done` says whether the operation was, after a look at all that it could have harmed.
template <class Handle, class Operate, class Done>
void expect_whole(const Scene<Handle>& scene, const char* operation, Operate operate, Done done) {
    for (const How how : {How::Stop, How::Destroy}) {
        const char* const given_up = how == How::Stop ? "stopped" : "destroyed";
        SCOPED_TRACE(std::string(scene.name) + " " + operation + " " + given_up);
        const std::size_t points = visit(scene, how, operate, done);
        std::printf("%-10s %-8s %-9s %4zu points\n", scene.name, operation, given_up, points);
        EXPECT_GT(points, 0u);
        if (testing::Test::HasFailure()) return;
    }
}

// Keys 1 to `full` fill the only bucket, or the only leaf: one more makes it grow.
template <class M>
void expect_whole_map(const Scene<M>& scene, std::uint64_t full) {
    const auto value = [](M& map, std::uint64_t key) { return map.get(key).wait().value(); };
    // Nothing but key 5, or a new one, may be another; and a change meets no lock.
    const auto others_stay = [=](M& map) {
        for (std::uint64_t key = 1; key <= full; ++key)
            EXPECT_TRUE(key == 5 || value(map, key) == key) << key;
        const auto after = value(map, 5);
        EXPECT_TRUE(map.put(5, 77).wait());
        return after;
    };
    expect_whole(
        scene, "put", [](M& map) { return map.put(5, 6); },
        [=](M& map) { return others_stay(map) == 6u; });
    expect_whole(
        scene, "put new", [=](M& map) { return map.put(full + 1, 6); },
        [=](M& map) { return others_stay(map) == 5u && value(map, full + 1) == 6u; });
    expect_whole(
        scene, "insert", [=](M& map) { return map.insert(full + 1, 6); },
        [=](M& map) { return others_stay(map) == 5u && value(map, full + 1) == 6u; });
    expect_whole(
        scene, "erase", [](M& map) { return map.erase(5); },
        [=](M& map) { return others_stay(map) == std::nullopt; });
    expect_whole(
        scene, "update",
        [](M& map) { return map.update(5, [](auto& now) { now = now.value_or(0) + 4; }); },
        [=](M& map) { return others_stay(map) == 9u; });
    // What only reads is done if it says so.
    bool shown = false;
    expect_whole(
        scene, "for_each",
        [&](M& map) {
            shown = false;
            return map.for_each([&](std::uint64_t key, std::uint64_t) { shown |= key == full; });
        },
        [&](M& map) { return others_stay(map) == 5u && shown; });
}

TEST(GasCancel, HashMapIsWhole) {
    const Scene<Table> scene{
        "HashMap",
        [](gas::Node& node) {
            const auto root = Table::create(node, 1).value();
            Table table = Table::open(node, root).value();
            for (std::uint64_t key = 1; key <= 7; ++key) EXPECT_TRUE(table.put(key, key).wait());
            EXPECT_TRUE(table.put(kOther, 0).wait());  // The eighth, and last.
            return root;
        },
        [](gas::Node& node, ptr<Table::Root> root) { return Table::open(node, root).value(); },
        [](Table& table, std::uint64_t count) { EXPECT_TRUE(table.put(kOther, count).wait()); }};
    expect_whole_map(scene, 7);
}

TEST(GasCancel, OrderedMapIsWhole) {
    using Leaf = gas::detail::TreeNode<std::uint64_t, std::uint64_t>;
    const Scene<Ordered> scene{
        "OrderedMap",
        [](gas::Node& node) {
            const auto root = Ordered::create(node).value();
            Ordered map = Ordered::open(node, root).value();
            for (std::uint64_t key = 1; key < Leaf::kEntries; ++key)
                EXPECT_TRUE(map.put(key, key).wait());
            EXPECT_TRUE(map.put(kOther, 0).wait());
            return root;
        },
        [](gas::Node& node, ptr<Ordered::Root> root) { return Ordered::open(node, root).value(); },
        [](Ordered& map, std::uint64_t count) { EXPECT_TRUE(map.put(kOther, count).wait()); }};
    expect_whole_map(scene, Leaf::kEntries - 1);
}

TEST(GasCancel, QueueLosesNothing) {
    const Scene<Fifo> scene{"Queue",
                            [](gas::Node& node) {
                                const auto root = Fifo::create(node).value();
                                Fifo queue(node, root);
                                for (std::uint64_t i = 1; i <= 3; ++i)
                                    EXPECT_TRUE(queue.push(i).wait());
                                return root;
                            },
                            [](gas::Node& node, ptr<Fifo::Root> root) { return Fifo(node, root); },
                            [](Fifo& queue, std::uint64_t count) {
                                if (count < 100) {
                                    EXPECT_TRUE(queue.push(kOther + count).wait());
                                }
                            }};
    // All but what node 0 has pushed.
    const auto drain = [](Fifo& queue) {
        std::vector<std::uint64_t> out;
        std::uint64_t next = kOther;
        for (;;) {
            const auto popped = queue.pop().wait();
            EXPECT_TRUE(popped);
            if (!popped || !*popped) return out;
            if (**popped < kOther)
                out.push_back(**popped);
            else
                EXPECT_EQ(**popped, next++);
        }
    };
    using Values = std::vector<std::uint64_t>;
    expect_whole(
        scene, "push", [](Fifo& queue) { return queue.push(9); },
        [=](Fifo& queue) {
            const Values left = drain(queue);
            EXPECT_TRUE(left == Values({1, 2, 3}) || left == Values({1, 2, 3, 9}));
            return left.size() == 4;
        });
    expect_whole(
        scene, "pop", [](Fifo& queue) { return queue.pop(); },
        [=](Fifo& queue) {
            Values left = drain(queue);
            if (left == Values({2, 3})) return true;
            std::sort(left.begin(), left.end());  // It may have gone back to the end.
            EXPECT_EQ(left, Values({1, 2, 3}));
            return false;
        });
}

// With the name that others have for it.
struct Keys : Set {
    using Root = Set::Item;
    using Set::Set;
};

TEST(GasCancel, ListSetIsWhole) {
    const Scene<Keys> scene{"ListSet",
                            [](gas::Node& node) {
                                const auto first = Set::create(node).value();
                                Keys set(node, first);
                                for (std::uint64_t key = 1; key <= 3; ++key)
                                    EXPECT_TRUE(set.insert(key * 2).wait());
                                return first;
                            },
                            [](gas::Node& node, ptr<Set::Item> first) { return Keys(node, first); },
                            [](Keys& set, std::uint64_t count) {
                                const std::uint64_t key = 3 + count / 2 % 2 * 2;
                                const bool adds = count % 2 == 0;
                                EXPECT_TRUE(adds ? set.insert(key).wait() : set.erase(key).wait());
                            }};
    const auto has = [](Keys& set, std::uint64_t key) { return set.contains(key).wait().value(); };
    expect_whole(
        scene, "insert", [](Keys& set) { return set.insert(9); },
        [=](Keys& set) { return has(set, 2) && has(set, 4) && has(set, 6) && has(set, 9); });
    expect_whole(
        scene, "erase", [](Keys& set) { return set.erase(4); },
        [=](Keys& set) { return has(set, 2) && !has(set, 4) && has(set, 6); });
}

}  // namespace
}  // namespace feroce::sim
