// Clients that contend for a disk, and lose it: cut off until their session is forgotten, evicted,
// or overtaken while its server was restarted, and then back with what they had not sent yet. The
// server is stopped, killed, and crashes with its machine; its file is replaced; flushes fail.
// DiskHistory judges every answer and every write that lands.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <vector>

#include "feroce/block/client.hpp"
#include "feroce/block/server.hpp"
#include "feroce/task_group.hpp"
#include "sim/abi_world.hpp"
#include "sim/disk_history.hpp"
#include "sim/seeds.hpp"
#include "sim/sim_runtime.hpp"
#include "sim/volatile_disk.hpp"
#include "stamp.hpp"

namespace feroce::sim::block_history_test {
namespace {

using namespace std::chrono_literals;
using block::kSectorSize;
using Answer = DiskHistory::Answer;
using Habits = VolatileBackend::Habits;
using rdma::Task;

constexpr std::size_t kClients = 3;
constexpr int kTurns = 4;  // How often each opens the disk.
constexpr int kWorkers = 3;
constexpr int kSteps = 12;
constexpr std::size_t kSectors = 24;
constexpr std::size_t kMost = 6;  // Of one request.
constexpr Duration kChaos = 8s;

struct Outcome {
    std::uint64_t hash = 0;
    std::string verdict;
    std::size_t opened = 0, durable = 0;
    int overtaken = 0;  // Handles that got ESTALE.
    int told = 0;       // Flushes that failed because of a loss.
    int given_up = 0;   // Writes with a deadline.
    int restarts = 0, crashes = 0, replacements = 0, evictions = 0;

    void add(const Outcome& other) {
        opened += other.opened, durable += other.durable;
        overtaken += other.overtaken, told += other.told, given_up += other.given_up;
        restarts += other.restarts, crashes += other.crashes;
        replacements += other.replacements, evictions += other.evictions;
    }
};

struct Plan {
    Habits habits{.flush_fails = 0.04, .killed_flush_fails = 0.3};
    double kills_in_flush = 0.01;      // Of the server,
    double kills_at_loss = 0.2;        // and of one that has not recorded a failed flush yet.
    int trouble = 1;                   // How much of it, for a bug that is hard to meet.
    bool new_stores_are_known = true;  // False, a planted bug: a replaced file keeps its record.
};

class Simulation {
public:
    Simulation(std::uint64_t seed, const Plan& plan)
        : random_(seed ^ 0x6869'7374),
          plan_(plan),
          disk_(kSectors * kSectorSize, seed),
          world_(seed, {.nodes = 1 + kClients, .rails = 2, .machine = machine()}) {
        disk_.on_write = [this](std::uint64_t offset, std::span<std::byte> bytes) {
            const std::size_t first = offset / kSectorSize;
            for (std::size_t i = 0; i < bytes.size() / kSectorSize; ++i)
                history_.landed(first + i, version_at(bytes, i, first + i));
        };
        disk_.on_flush = [this] { kill_perhaps(plan_.kills_in_flush); };
        disk_.on_loss = [this] {
            history_.lost();
            kill_perhaps(plan_.kills_at_loss);
        };
    }

    Outcome run() {
        world_.node(0).start("server", [this] { serve(); });
        for (std::size_t i = 0; i < kClients; ++i)
            world_.node(1 + i).start("client", [this, i] { live(i); });
        plan_chaos();
        EXPECT_EQ(world_.run_all(600s), "") << "requests without an end";
        outcome_.hash = world_.trace_hash();
        outcome_.verdict = history_.verdict();
        outcome_.opened = history_.handles();
        outcome_.durable = history_.durable();
        return outcome_;
    }

private:
    enum class End : std::uint8_t { None, Stop, Kill, Crash, Replace };
    // A disk that a client has opened.
    struct Opened {
        block::Disk disk;
        DiskHistory::HandleId handle;
        bool over = false;
    };

    static MachineConfig machine() {
        MachineConfig config;
        config.memory_bytes = 64 << 20;  // Large pieces are not used again.
        return config;
    }
    static DiskHistory::Version version_at(std::span<std::byte> bytes, std::size_t index,
                                           std::size_t sector) {
        return version_of(bytes.subspan(index * kSectorSize, kSectorSize),
                          static_cast<std::uint32_t>(sector));
    }

    // The server's machine.
    void serve() {
        while (!over_) {
            SimRuntime runtime(++lives_);
            rdma::Loop loop(runtime);
            block::DiskServer server = open_server(loop);
            end_ = End::None;
            while (end_ == End::None && !over_) {
                loop.poll_or_wait(loop.after(100ms));
                if (std::exchange(evict_, false)) outcome_.evictions += bool(server.evict("disk"));
            }
            if (end_ == End::Kill || end_ == End::Replace) disk_.kill();
            if (end_ == End::Crash) disk_.crash();
            (void)loop.run(server.stop());
            outcome_.restarts += end_ != End::None;
            outcome_.crashes += end_ == End::Crash;
            if (end_ == End::Replace) replace();
        }
    }

    block::DiskServer open_server(rdma::Loop& loop) {
        rtrs::ServerOptions options;
        options.address = "0.0.0.0";
        options.queue_depth = 8;
        options.chunk_size = 8 << 10;
        options.header_size = 4 << 10;
        options.session_linger = 700ms;
        std::vector<block::Export> exports;
        exports.push_back(
            {"disk", std::make_shared<VolatileBackend>(loop, disk_, random_, plan_.habits)});
        return block::DiskServer::open(loop, options, std::move(exports)).value();
    }

    void replace() {
        const block::WriterRecord before = disk_.record;
        disk_.replace(before.store + 1);
        if (!plan_.new_stores_are_known) disk_.record = before;
        history_.replaced();
        ++outcome_.replacements;
    }

    void end_server(End how) {
        end_ = how;
        world_.node(0).poke();
    }

    void kill_perhaps(double chance) {
        if (end_ == End::None && random_.chance(chance)) end_server(End::Kill);
    }

    // A client's machine.
    void live(std::size_t who) {
        SimRuntime runtime(100 + who);
        rdma::Loop loop(runtime);
        sleep_for(1ms);
        loop.run(take_turns(loop, "client" + std::to_string(who)));
        if (++ended_ < kClients) return;
        // What was promised must be there without a cache, too.
        end_server(End::Crash);
        loop.run(look_at_all(loop));
        over_ = true;
        world_.node(0).poke();
    }

    Task<void> take_turns(rdma::Loop& loop, std::string name) {
        for (int turn = 0; turn < kTurns; ++turn) {
            (void)co_await loop.sleep(std::chrono::milliseconds(random_.below(500)));
            block::DiskClient client(loop);
            Opened opened = co_await open(loop, client, name);
            rdma::TaskGroup group(loop);
            for (int i = 0; i < kWorkers; ++i) group.spawn(work(loop, opened));
            (void)co_await group.join();
            // Else it is closed in the background, as its session is.
            if (random_.chance(0.5)) (void)co_await opened.disk.close().within(1s);
        }
    }

    // Until it is ours. One client asks at a time, so that the order of the grants is known.
    Task<Opened> open(rdma::Loop& loop, block::DiskClient& client, std::string name) {
        rtrs::SessionOptions options;
        options.connect_timeout = 1s;
        options.queue_if_no_path = 1h;
        std::vector<rtrs::PathAddress> paths;
        for (std::size_t rail = 0; rail < 2; ++rail)
            paths.push_back({to_string(world_.node(0).address(rail))});
        std::optional<block::Disk> beside;  // Keeps the session while others have the disk.
        for (;;) {
            if (!beside)
                if (auto done = co_await client.open(name, paths, "disk",
                                                     block::AccessMode::ReadOnly, options))
                    beside = *std::move(done);
            while (asking_) (void)co_await loop.sleep(3ms);
            asking_ = true;
            auto done =
                co_await client.open(name, paths, "disk", block::AccessMode::ReadWrite, options)
                    .within(1s);
            if (done) {
                asking_ = false;
                co_return Opened{*std::move(done), history_.opened()};
            }
            asking_ = false;
            (void)co_await loop.sleep(std::chrono::milliseconds(20 + random_.below(50)));
        }
    }

    Task<void> work(rdma::Loop& loop, Opened& opened) {
        for (int i = 0; i < kSteps && !opened.over; ++i) {
            (void)co_await loop.sleep(std::chrono::milliseconds(random_.below(60)));
            const auto what = random_.below(10);
            if (what < 6)
                co_await write(opened, {.fua = what == 0, .preflush = what == 1});
            else if (what < 8)
                co_await read(opened);
            else
                co_await flush(opened);
        }
    }

    // What an error of it means.
    Answer answer_of(Opened& opened, const rdma::Result<>& done, bool promises) {
        if (done) return Answer::Done;
        const int code = done.error().code;
        if (code == ESTALE) outcome_.overtaken += !std::exchange(opened.over, true);
        if (code == EPERM && !plan_.habits.keeps_grants) opened.over = true;
        if (code == ETIMEDOUT) ++outcome_.given_up;
        EXPECT_TRUE(opened.over || code == ETIMEDOUT || (code == EIO && promises))
            << done.error().why;
        if (code == EIO) ++outcome_.told;
        return code == EIO ? Answer::Lost : Answer::Unknown;
    }

    Task<void> write(Opened& opened, DiskHistory::Promise promise) {
        const std::size_t count = 1 + random_.below(kMost);
        const std::size_t first = random_.below(kSectors - count + 1);
        const auto id = history_.begin_write(opened.handle, first, count, promise);
        std::vector<std::byte> data(count * kSectorSize);
        for (std::size_t i = 0; i < count; ++i)
            stamp(std::span(data).subspan(i * kSectorSize, kSectorSize),
                  static_cast<std::uint32_t>(first + i), id);
        auto call = opened.disk.write(first * kSectorSize, data,
                                      {.fua = promise.fua, .preflush = promise.preflush});
        if (random_.chance(0.1)) call = std::move(call).within(5ms);
        const auto done = co_await std::move(call);
        history_.end_write(id, answer_of(opened, done, promise.fua || promise.preflush));
    }

    Task<void> flush(Opened& opened) {
        const auto id = history_.begin_flush(opened.handle);
        const auto done = co_await opened.disk.flush();
        history_.end_flush(id, answer_of(opened, done, true));
        if (done) co_await read(opened, 0, kSectors);
    }

    Task<void> read(Opened& opened) {
        const std::size_t count = 1 + random_.below(kMost);
        co_await read(opened, random_.below(kSectors - count + 1), count);
    }

    Task<void> read(Opened& opened, std::size_t first, std::size_t count) {
        std::vector<std::byte> data(count * kSectorSize);
        const auto id = history_.begin_read(opened.handle, first);
        const auto done = co_await opened.disk.read(first * kSectorSize, data);
        if (answer_of(opened, done, false) != Answer::Done) co_return;
        std::vector<DiskHistory::Version> found;
        for (std::size_t i = 0; i < count; ++i) found.push_back(version_at(data, i, first + i));
        history_.end_read(id, found);
    }

    Task<void> look_at_all(rdma::Loop& loop) {
        while (end_ != End::None) (void)co_await loop.sleep(1ms);
        block::DiskClient client(loop);
        Opened opened = co_await open(loop, client, "judge");
        co_await read(opened, 0, kSectors);
        // A server that keeps no grants forgets this one, too, if it is killed now.
        EXPECT_FALSE(opened.over && plan_.habits.keeps_grants);
    }

    void plan_chaos() {
        Scheduler& scheduler = world_.world().scheduler();
        const Instant start = world_.now();
        const auto some_time = [&] {
            return start + std::chrono::milliseconds(random_.below(7000));
        };
        constexpr std::array kEnds{End::Stop, End::Kill, End::Kill, End::Crash, End::Replace};
        for (int i = 0; i < 4 * plan_.trouble; ++i) {
            const End how = kEnds[random_.below(kEnds.size())];
            scheduler.at(some_time(), [this, how] { end_server(how); });
        }
        for (int i = 0; i < 2; ++i)
            scheduler.at(some_time(), [this] {
                evict_ = true;
                world_.node(0).poke();
            });
        // A rail fails,
        for (int i = 0; i < 3; ++i) cut(random_.below(1 + kClients), random_.below(2), some_time());
        // or a client is alone with what it wants to write.
        for (int i = 0; i < 4 * plan_.trouble; ++i) {
            const std::size_t node = 1 + random_.below(kClients);
            const Instant at = some_time();
            for (std::size_t rail = 0; rail < 2; ++rail) cut(node, rail, at);
        }
        scheduler.at(start + kChaos, [this] { world_.world().heal(); });
    }

    void cut(std::size_t node, std::size_t rail, Instant at) {
        Scheduler& scheduler = world_.world().scheduler();
        Link& up = world_.world().uplink(node, rail);
        Link& down = world_.world().downlink(node, rail);
        const bool late = random_.chance(0.5);  // Delivered afterwards rather than lost.
        const auto set = [late, &up, &down](bool yes) {
            late ? up.set_held(yes) : up.set_blocked(yes);
            down.set_blocked(yes);
        };
        scheduler.at(at, [set] { set(true); });
        scheduler.at(at + std::chrono::milliseconds(200 + random_.below(2300)),
                     [set] { set(false); });
    }

    Prng random_;
    Plan plan_;
    VolatileDisk disk_;
    DiskHistory history_{kSectors};
    AbiWorld world_;
    Outcome outcome_;
    std::uint64_t lives_ = 0;
    std::size_t ended_ = 0;  // Clients.
    bool asking_ = false;
    bool evict_ = false;
    bool over_ = false;
    End end_ = End::Stop;  // Of the server, which has not begun yet.
};

TEST(BlockHistory, AcknowledgedIsDurableAndGenerationsHold) {
    Outcome sum;
    const auto all = seeds(10);
    for (const std::uint64_t seed : all) {
        SCOPED_TRACE(seed);
        const Outcome outcome = Simulation(seed, {}).run();
        ASSERT_EQ(outcome.verdict, "");
        ASSERT_EQ(Simulation(seed, {}).run().hash, outcome.hash);
        sum.add(outcome);
        if (testing::Test::HasFailure()) return;
    }
    std::printf(
        "%zu seeds: %zu handles, %d overtaken; %zu durable writes, %d failed flushes, "
        "%d requests given up; %d restarts, %d of them crashes, %d with another file; "
        "%d evictions\n",
        all.size(), sum.opened, sum.overtaken, sum.durable, sum.told, sum.given_up, sum.restarts,
        sum.crashes, sum.replacements, sum.evictions);
    // The runs must have been what they claim to be.
    EXPECT_GT(sum.overtaken, 0);
    EXPECT_GT(sum.durable, 100u);
    EXPECT_GT(sum.told, 0);
    EXPECT_GT(sum.given_up, 0);
    EXPECT_GT(sum.crashes, 0);
    EXPECT_GT(sum.restarts, sum.crashes);
    EXPECT_GT(sum.replacements, 0);
    EXPECT_GT(sum.evictions, 0);
}

// Whether some seeds find the bug by each of these rules, and none by another.
bool is_found(const Plan& plan, std::vector<std::string> verdicts) {
    const std::vector<std::string> all = verdicts;
    for (std::uint64_t seed = 0; seed < 240 && !verdicts.empty(); ++seed) {
        SCOPED_TRACE(seed);
        const std::string found = Simulation(seed, plan).run().verdict;
        const auto says = [&](const std::string& rule) { return found.starts_with(rule); };
        EXPECT_TRUE(found.empty() || std::any_of(all.begin(), all.end(), says)) << found;
        std::erase_if(verdicts, says);
    }
    return verdicts.empty();
}

Plan with(bool Habits::*habit) {
    Plan plan;
    plan.habits.*habit = false;
    return plan;
}

TEST(BlockHistory, AServerThatDoesNotTellOfCrashesIsFound) {
    EXPECT_TRUE(is_found(with(&Habits::tells_of_crashes), {"a durable write is gone"}));
}

TEST(BlockHistory, AFlushThatHidesItsErrorIsFound) {
    EXPECT_TRUE(is_found(with(&Habits::tells_of_failed_flushes), {"a durable write is gone"}));
}

// Of a server that was killed between a failed flush and its record.
TEST(BlockHistory, FlushesWithoutAMarkAreFound) {
    const Plan plan = with(&Habits::marks_flushes);
    EXPECT_TRUE(is_found(plan, {"a durable write is gone"}));
}

// Of one that was killed while it flushed.
TEST(BlockHistory, AMarkThatIsNotLookedIntoIsFound) {
    Plan plan = with(&Habits::asks_the_kernel);
    plan.kills_in_flush = 0.1;
    EXPECT_TRUE(is_found(plan, {"a durable write is gone"}));
}

TEST(BlockHistory, GrantsThatAreNotKeptAreFound) {
    Plan plan = with(&Habits::keeps_grants);
    plan.trouble = 3;
    EXPECT_TRUE(is_found(plan, {"a write of an older generation landed"}));
}

TEST(BlockHistory, AnAnswerBeforeTheWriteIsFound) {
    EXPECT_TRUE(is_found(with(&Habits::answers_when_done),
                         {"a write was acknowledged and has not landed"}));
}

TEST(BlockHistory, AReplacedFileThatKeepsItsRecordIsFound) {
    Plan plan;
    plan.new_stores_are_known = false;
    EXPECT_TRUE(is_found(plan, {"a replaced store was read as the old",
                                "a write for a store that was replaced landed"}));
}

}  // namespace
}  // namespace feroce::sim::block_history_test
