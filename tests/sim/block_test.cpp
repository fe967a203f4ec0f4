// Disks on simulated machines whose server crashes again and again, with a cache that then forgets
// any part of what was not flushed, while its networks are cut. Whoever was told that a flush was
// done finds what was written before it; whoever was not told of a loss has not had one.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "feroce/block/client.hpp"
#include "feroce/block/server.hpp"
#include "sim/abi_world.hpp"
#include "sim/seeds.hpp"
#include "sim/sim_runtime.hpp"
#include "sim/volatile_disk.hpp"
#include "stamp.hpp"

namespace feroce::sim {
namespace {

using namespace std::chrono_literals;
using block::kSectorSize;

constexpr int kWorkers = 6;
constexpr std::size_t kSectors = 24;  // Of each worker.
constexpr int kSteps = 40;
constexpr Duration kChaos = 6s;

struct Outcome {
    std::uint64_t hash = 0;
    int crashes = 0;
    std::uint64_t forgotten = 0;
    int told = 0;     // Flushes that failed because of a loss.
    int flushed = 0;  // That were done.
    std::string verdict;
};

class Simulation {
public:
    Simulation(std::uint64_t seed, bool tells)
        : random_(seed ^ 0x626c'6f63), tells_(tells), world_(seed, {.nodes = 2, .rails = 2}) {}

    Outcome run() {
        world_.node(0).start("server", [this] { serve(); });
        world_.node(1).start("client", [this] { use(); });
        plan_chaos();
        EXPECT_EQ(world_.run_all(600s), "") << "requests without an end";
        outcome_.hash = world_.trace_hash();
        outcome_.crashes = disk_.crashes();
        outcome_.forgotten = disk_.forgotten();
        return outcome_;
    }

private:
    struct Sector {
        std::uint32_t durable = 0;  // At least this is there whatever happens.
        std::uint32_t latest = 0;   // And this if nothing was lost.
    };

    void serve() {
        while (!over_) {
            SimRuntime runtime(++lives_);
            rdma::Loop loop(runtime);
            rtrs::ServerOptions options;
            options.address = "0.0.0.0";
            options.queue_depth = 16;
            options.chunk_size = 32 << 10;
            options.header_size = 4 << 10;
            std::vector<block::Export> exports;
            const VolatileBackend::Habits habits{.tells_of_crashes = tells_};
            exports.push_back(
                {"disk", std::make_shared<VolatileBackend>(loop, disk_, random_, habits)});
            block::DiskServer server =
                block::DiskServer::open(loop, options, std::move(exports)).value();
            crash_ = false;
            while (!crash_ && !over_) loop.poll_or_wait(loop.after(100ms));
            if (!over_) disk_.crash();
            (void)loop.run(server.stop());
        }
    }

    void use() {
        SimRuntime runtime(7);
        rdma::Loop loop(runtime);
        sleep_for(1ms);
        loop.run(use_disk(loop));
        over_ = true;
        world_.node(0).poke();
    }

    rdma::Task<void> use_disk(rdma::Loop& loop) {
        block::DiskClient client(loop);
        client_ = &client;
        co_await open_disk();
        rdma::TaskGroup group(loop);
        for (int i = 0; i < kWorkers; ++i) group.spawn(work(loop, i));
        (void)co_await group.join();
        open_.reset();
    }

    rdma::Task<void> open_disk() {
        rtrs::SessionOptions options;
        options.connect_timeout = 1s;
        options.queue_if_no_path = 1h;
        std::vector<rtrs::PathAddress> paths;
        for (std::size_t rail = 0; rail < 2; ++rail)
            paths.push_back({to_string(world_.node(0).address(rail))});
        open_.reset();
        while (!open_) {
            auto opened = co_await client_->open("simulated", paths, "disk",
                                                 block::AccessMode::ReadWrite, options);
            if (opened) open_ = *std::move(opened);
        }
    }

    // A loss was told: no flush of that handle succeeds any more. One of the workers closes it,
    // when nobody uses it, and opens the disk again; the others find the new one.
    rdma::Task<void> reopen(rdma::Loop& loop) {
        if (reopening_) {
            while (reopening_) (void)co_await loop.sleep(1ms);
            co_return;
        }
        reopening_ = true;
        while (busy_ > 0) (void)co_await loop.sleep(1ms);
        const auto again = co_await open_->flush();
        if (again) blame("a failed flush was followed by one that succeeded", 0);
        (void)co_await open_->close();
        co_await open_disk();
        ++told_;  // Flushes of the new handle say nothing about what the old one wrote.
        lost_ = reopening_ = false;
    }

    rdma::Task<void> work(rdma::Loop& loop, int worker) {
        std::vector<Sector> sectors(kSectors);
        const auto base = static_cast<std::uint32_t>(worker) * kSectors;
        std::uint32_t version = 0;
        int told = told_;  // When everything of ours was durable last.
        for (int i = 0; i < kSteps; ++i) {
            (void)co_await loop.sleep(std::chrono::milliseconds(random_.below(200)));
            if (lost_) co_await reopen(loop);
            const block::Disk disk = *open_;
            ++busy_;
            const std::size_t count = 1 + random_.below(8);
            const std::size_t first = random_.below(kSectors - count + 1);
            const auto part = std::span(sectors).subspan(first, count);
            const auto what = random_.below(10);
            if (what < 6) {
                ++version;
                co_await write(disk, base + static_cast<std::uint32_t>(first), part, version,
                               what == 0);
            } else if (what < 8) {
                co_await look(disk, base + static_cast<std::uint32_t>(first), part);
            } else {
                co_await flush(disk, base, sectors, told);
            }
            --busy_;
        }
    }

    rdma::Task<void> write(block::Disk disk, std::uint32_t number, std::span<Sector> sectors,
                           std::uint32_t version, bool fua) {
        std::vector<std::byte> data(sectors.size() * kSectorSize);
        for (std::size_t i = 0; i < sectors.size(); ++i) {
            stamp(std::span(data).subspan(i * kSectorSize, kSectorSize),
                  number + static_cast<std::uint32_t>(i), version);
            sectors[i].latest = version;
        }
        auto done = co_await disk.write(std::uint64_t{number} * kSectorSize, data, {.fua = fua});
        if (!done && fua) co_return was_told(done.error());
        EXPECT_TRUE(done) << done.error().why;
        for (Sector& sector : sectors)
            if (fua) sector.durable = version;
    }

    // Reads, judges, and takes what is there for the truth.
    rdma::Task<void> look(block::Disk disk, std::uint32_t number, std::span<Sector> sectors) {
        std::vector<std::byte> data(sectors.size() * kSectorSize);
        auto done = co_await disk.read(std::uint64_t{number} * kSectorSize, data);
        EXPECT_TRUE(done) << done.error().why;
        for (std::size_t i = 0; i < sectors.size(); ++i) {
            const auto at = number + static_cast<std::uint32_t>(i);
            const auto found =
                version_of(std::span(data).subspan(i * kSectorSize, kSectorSize), at);
            if (!found) blame("a torn sector", at);
            if (found && *found < sectors[i].durable) blame("a durable write is gone", at);
            if (found && *found > sectors[i].latest) blame("a write from nowhere", at);
            sectors[i].latest = found.value_or(0);
        }
    }

    rdma::Task<void> flush(block::Disk disk, std::uint32_t base, std::span<Sector> sectors,
                           int& told) {
        auto done = co_await disk.flush();
        if (!done)
            was_told(done.error());
        else
            ++outcome_.flushed;
        // A loss is told to one of us and concerns all: what it left must be looked at.
        const bool sure = done && told == told_;
        for (Sector& sector : sectors)
            if (sure) sector.durable = sector.latest;
        told = told_;
        co_await look(disk, base, sectors);
    }

    void was_told(const rdma::Error& error) {
        EXPECT_EQ(error.code, EIO) << error.why;
        ++told_;
        ++outcome_.told;
        lost_ = true;
    }

    void blame(const char* what, std::uint32_t sector) {
        if (outcome_.verdict.empty())
            outcome_.verdict = std::string(what) + ": sector " + std::to_string(sector);
    }

    void plan_chaos() {
        Scheduler& scheduler = world_.world().scheduler();
        const Instant start = world_.now();
        for (int i = 0; i < 4; ++i)
            scheduler.at(start + std::chrono::milliseconds(300 + random_.below(5500)), [this] {
                crash_ = true;
                world_.node(0).poke();
            });
        for (int i = 0; i < 4; ++i) {
            Link& link = world_.world().uplink(random_.below(2), random_.below(2));
            const Instant at = start + std::chrono::milliseconds(random_.below(5000));
            scheduler.at(at, [&link] { link.set_blocked(true); });
            scheduler.at(at + std::chrono::milliseconds(100 + random_.below(1500)),
                         [&link] { link.set_blocked(false); });
        }
        scheduler.at(start + kChaos, [this] { world_.world().heal(); });
    }

    Prng random_;
    bool tells_;
    VolatileDisk disk_{kWorkers * kSectors * kSectorSize, 77};
    AbiWorld world_;
    Outcome outcome_;
    std::uint64_t lives_ = 0;
    int told_ = 0;
    block::DiskClient* client_ = nullptr;
    std::optional<block::Disk> open_;
    int busy_ = 0;  // Workers that use it.
    bool lost_ = false;
    bool reopening_ = false;
    bool crash_ = false;
    bool over_ = false;
};

TEST(BlockSim, WhatWasFlushedSurvivesACrash) {
    Outcome sum;
    for (const std::uint64_t seed : seeds(10)) {
        SCOPED_TRACE(seed);
        const Outcome outcome = Simulation(seed, true).run();
        ASSERT_EQ(outcome.verdict, "");
        ASSERT_EQ(Simulation(seed, true).run().hash, outcome.hash);
        sum.crashes += outcome.crashes;
        sum.forgotten += outcome.forgotten;
        sum.told += outcome.told;
        sum.flushed += outcome.flushed;
        if (testing::Test::HasFailure()) return;
    }
    // The runs must have been what they claim to be.
    EXPECT_GT(sum.crashes, 10);
    EXPECT_GT(sum.forgotten, 0u);
    EXPECT_GT(sum.told, 0);
    EXPECT_GT(sum.flushed, 100);
}

// A server that does not tell of its crash, as the kernel's does not: a flush then seems to cover
// what is gone. If the judge does not see that, it sees nothing.
TEST(BlockSim, AServerThatDoesNotTellLosesWhatWasFlushed) {
    int lost = 0;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        SCOPED_TRACE(seed);
        lost += Simulation(seed, false).run().verdict.starts_with("a durable write is gone");
    }
    EXPECT_GT(lost, 0);
}

}  // namespace
}  // namespace feroce::sim
