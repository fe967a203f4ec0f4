// Operations of disks that are given up: stopped, or their coroutine destroyed, at each of their
// suspension points in turn; on a server that knows the disk, and on one that has crashed, so that
// the disk is opened again on the way. Afterwards nothing touches the caller's memory, every other
// request of the disk goes on, no permit and no right to write is lost, and a loss is told to those
// who ask next. As a request waits at one point for many things, the same at each round of the
// loop. The points that were visited are printed for each operation; none is a failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "feroce/block/client.hpp"
#include "feroce/block/server.hpp"
#include "sim/abi_world.hpp"
#include "sim/cancel_points.hpp"
#include "sim/sim_runtime.hpp"
#include "sim/volatile_disk.hpp"

namespace feroce::sim::block_cancel_test {
namespace {

using namespace std::chrono_literals;
using block::kSectorSize;
using rdma::Result;
using rdma::Task;

constexpr std::size_t kMost = 2000;
constexpr std::size_t kBytes = 64 << 10;
constexpr Duration kSoon = 2s;  // Much less than a server remembers a client.
constexpr std::byte kMark{0x5a};

using Bytes = std::vector<std::byte>;
// Gives an operation of an open disk; the memory is what it reads or writes.
using Operate = Task<Result<>> (*)(const block::Disk& disk, std::span<std::byte> memory);

class Stage {
public:
    explicit Stage(std::uint64_t seed) : random_(seed), world_(seed, {.machine = machine()}) {}

    // The program is the client's.
    template <class Program>
    void run(Program program) {
        world_.node(0).start("server", [this] { serve(); });
        world_.node(1).start("client", [&] {
            SimRuntime runtime(7);
            rdma::Loop loop(runtime);
            wait_for_server(loop);
            program(loop);
            over_ = true;
            world_.node(0).poke();
        });
        EXPECT_EQ(world_.run_all(3600s), "");
    }

    Task<Result<block::Disk>> open(block::DiskClient& client, std::string session,
                                   std::string disk = "disk") {
        rtrs::SessionOptions options;
        options.connect_timeout = 1s;
        const std::vector<rtrs::PathAddress> paths{{to_string(world_.node(0).address())}};
        return client.open(std::move(session), paths, std::move(disk), block::AccessMode::ReadWrite,
                           options);
    }
    // Its machine, and what was not flushed is forgotten.
    void crash_server(rdma::Loop& loop) {
        crash_ = true;
        world_.node(0).poke();
        wait_for_server(loop);
    }
    std::size_t sessions() { return server_->statistics().sessions.sessions; }

private:
    static MachineConfig machine() {
        MachineConfig config;
        config.memory_bytes = 64 << 20;
        return config;
    }

    void wait_for_server(rdma::Loop& loop) {
        loop.run(nap(loop, 1ms));
        ASSERT_TRUE(wait_for(loop, [this] { return server_ != nullptr && !crash_; }));
    }

    void serve() {
        while (!over_) {
            SimRuntime runtime(++lives_);
            rdma::Loop loop(runtime);
            rtrs::ServerOptions options;
            options.address = "0.0.0.0";
            options.queue_depth = 4;
            options.chunk_size = 8 << 10;
            options.header_size = 4 << 10;
            std::vector<block::Export> exports;
            exports.push_back({"disk", backend(loop, disk_)});
            exports.push_back({"other", backend(loop, other_)});
            block::DiskServer server =
                block::DiskServer::open(loop, options, std::move(exports)).value();
            server_ = &server;
            crash_ = false;
            while (!crash_ && !over_) loop.poll_or_wait(loop.after(100ms));
            server_ = nullptr;
            if (crash_) disk_.crash(), other_.crash();
            (void)loop.run(server.stop());
        }
    }
    std::shared_ptr<block::Backend> backend(rdma::Loop& loop, VolatileDisk& disk) {
        return std::make_shared<VolatileBackend>(loop, disk, random_, VolatileBackend::Habits{});
    }

    Prng random_;
    VolatileDisk disk_{kBytes, 1}, other_{kBytes, 2};
    AbiWorld world_;
    block::DiskServer* server_ = nullptr;
    std::uint64_t lives_ = 0;
    bool crash_ = false;
    bool over_ = false;
};

// Another client opens the disk for writing, soon.
void expect_free(Stage& stage, rdma::Loop& loop) {
    block::DiskClient rival(loop);
    Result<block::Disk> opened = rdma::Error(EPERM, "");
    EXPECT_TRUE(wait_for(loop, kSoon, [&] {
        opened = loop.run(stage.open(rival, "rival"));
        return opened || opened.error().code != EPERM;
    })) << "the right to write is lost";
    ASSERT_TRUE(opened) << opened.error().why;
    EXPECT_TRUE(opened->close().within(kSoon).wait());
    EXPECT_TRUE(opened->session().close().within(kSoon).wait());
}

void expect_usable(rdma::Loop& loop, const block::Disk& disk, bool lost) {
    Bytes page(4096);
    const auto read = disk.read(kBytes - page.size(), page).within(kSoon).wait();
    EXPECT_TRUE(read) << read.error().why;
    const auto flushed = disk.flush().within(kSoon).wait();
    EXPECT_EQ(flushed ? 0 : flushed.error().code, lost ? EIO : 0) << "what a flush says";
    EXPECT_TRUE(wait_for(loop, kSoon, [&] {
        return disk.session().statistics().permits_taken == 0;
    })) << "a permit is lost";
}

// False: the operation has fewer points.
bool give_up(Stage& stage, rdma::Loop& loop, Operate operate, bool crashes, std::size_t k,
             Way way) {
    block::DiskClient client(loop);
    auto opened = loop.run(stage.open(client, "victim"));
    EXPECT_TRUE(opened) << opened.error().why;
    if (!opened) return false;
    const block::Disk disk = *opened;
    const Bytes first(4096, std::byte{1});
    EXPECT_TRUE(disk.write(0, first).wait());
    if (crashes) stage.crash_server(loop);
    Bytes memory(16 << 10, std::byte{2});  // Several requests.
    bool reached = false;
    const auto outcome = run_until(loop, operate(disk, memory), k, way, reached);
    std::fill(memory.begin(), memory.end(), kMark);
    const int code = outcome && !*outcome ? outcome->error().code : 0;
    EXPECT_TRUE(code == 0 || code == ECANCELED || (code == EIO && crashes)) << code;
    expect_usable(loop, disk, crashes);
    EXPECT_EQ(std::count(memory.begin(), memory.end(), kMark), std::ssize(memory))
        << "written after it was given up";
    EXPECT_TRUE(disk.close().within(kSoon).wait());
    expect_free(stage, loop);
    return reached;
}

void visit(const char* operation, Operate operate, bool crashes) {
    for (const Way way : kWays) {
        std::size_t points = 0;
        Stage stage(3);
        stage.run([&](rdma::Loop& loop) {
            for (std::size_t k = 1; k <= kMost && !testing::Test::HasFailure(); ++k) {
                SCOPED_TRACE("point " + std::to_string(k));
                if (!give_up(stage, loop, operate, crashes, k, way)) break;
                points = k;
            }
        });
        std::printf("disk %-8s %-14s %-17s %4zu\n", operation, crashes ? "after a crash" : "",
                    way.name(), points);
        EXPECT_GT(points, 0u);
        ASSERT_FALSE(testing::Test::HasFailure()) << operation << " " << way.name();
    }
}

void visit(const char* operation, Operate operate) {
    visit(operation, operate, false);
    if (!testing::Test::HasFailure()) visit(operation, operate, true);
}

TEST(BlockCancel, Read) {
    visit("read", [](const block::Disk& disk, std::span<std::byte> memory) -> Task<Result<>> {
        return disk.read(0, memory.first(4096));
    });
}

TEST(BlockCancel, LargeRead) {
    visit("read 16K", [](const block::Disk& disk, std::span<std::byte> memory) -> Task<Result<>> {
        return disk.read(0, memory);
    });
}

TEST(BlockCancel, Write) {
    visit("write", [](const block::Disk& disk, std::span<std::byte> memory) -> Task<Result<>> {
        return disk.write(0, memory.first(4096));
    });
}

TEST(BlockCancel, LargeDurableWrite) {
    visit("write fua", [](const block::Disk& disk, std::span<std::byte> memory) -> Task<Result<>> {
        return disk.write(0, memory, {.fua = true, .preflush = true});
    });
}

TEST(BlockCancel, Flush) {
    visit("flush", [](const block::Disk& disk, std::span<std::byte>) -> Task<Result<>> {
        return disk.flush();
    });
}

TEST(BlockCancel, Zero) {
    visit("zero", [](const block::Disk& disk, std::span<std::byte>) -> Task<Result<>> {
        return disk.zero(0, 4096, {.fua = true});
    });
}

TEST(BlockCancel, Discard) {
    visit("discard", [](const block::Disk& disk, std::span<std::byte>) -> Task<Result<>> {
        return disk.discard(8192, 4096);
    });
}

TEST(BlockCancel, Refresh) {
    visit("refresh", [](const block::Disk& disk, std::span<std::byte>) -> Task<Result<>> {
        return disk.refresh();
    });
}

// The session has another disk open, so that it does not end with the operation.
template <class GiveUp>
void visit_beside(const char* operation, GiveUp give_up) {
    for (const Way way : kWays) {
        std::size_t points = 0;
        Stage stage(5);
        stage.run([&](rdma::Loop& loop) {
            block::DiskClient client(loop);
            const auto beside = loop.run(stage.open(client, "victim", "other"));
            ASSERT_TRUE(beside) << beside.error().why;
            for (std::size_t k = 1; k <= kMost && !testing::Test::HasFailure(); ++k) {
                SCOPED_TRACE("point " + std::to_string(k));
                bool reached = false;
                give_up(stage, loop, client, k, way, reached);
                expect_free(stage, loop);
                if (!reached) break;
                points = k;
            }
            expect_usable(loop, *beside, false);
        });
        std::printf("disk %-8s %-14s %-17s %4zu\n", operation, "", way.name(), points);
        EXPECT_GT(points, 0u);
        ASSERT_FALSE(testing::Test::HasFailure()) << operation << " " << way.name();
    }
}

TEST(BlockCancel, Open) {
    visit_beside("open", [](Stage& stage, rdma::Loop& loop, block::DiskClient& client,
                            std::size_t k, Way way, bool& reached) {
        expect_cancelled(run_until(loop, stage.open(client, "victim"), k, way, reached));
    });
}

TEST(BlockCancel, Close) {
    visit_beside("close", [](Stage& stage, rdma::Loop& loop, block::DiskClient& client,
                             std::size_t k, Way way, bool& reached) {
        const auto disk = loop.run(stage.open(client, "victim"));
        ASSERT_TRUE(disk) << disk.error().why;
        expect_cancelled(run_until(loop, Task<Result<>>(disk->close()), k, way, reached));
        expect_free(stage, loop);  // While the handle is still there.
    });
}

// Nothing is left of one that opens its session, too.
TEST(BlockCancel, OpenWithASession) {
    for (const Way way : kWays) {
        std::size_t points = 0;
        Stage stage(9);
        stage.run([&](rdma::Loop& loop) {
            for (std::size_t k = 1; k <= kMost && !testing::Test::HasFailure(); ++k) {
                SCOPED_TRACE("point " + std::to_string(k));
                bool reached = false;
                {
                    block::DiskClient client(loop);
                    expect_cancelled(
                        run_until(loop, stage.open(client, "victim"), k, way, reached));
                }
                EXPECT_TRUE(wait_for(loop, kSoon, [&] { return stage.sessions() == 0; }))
                    << "the server keeps a session";
                if (!reached) break;
                points = k;
            }
        });
        std::printf("disk %-8s %-14s %-17s %4zu\n", "open", "with a session", way.name(), points);
        EXPECT_GT(points, 0u);
        ASSERT_FALSE(testing::Test::HasFailure());
    }
}

}  // namespace
}  // namespace feroce::sim::block_cancel_test
