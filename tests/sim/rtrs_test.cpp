// Sessions on simulated machines with two to four networks between them that are cut, cut one way,
// lossy, late, and healed; with servers that are slow and servers that are restarted. Every request
// is done once and without an error, data is what was written, and no write takes effect twice or
// late.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/task_group.hpp"
#include "sim/abi_world.hpp"
#include "sim/rtrs_store.hpp"
#include "sim/seeds.hpp"
#include "sim/sim_runtime.hpp"

namespace feroce::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kChunk = 16 << 10;
constexpr std::uint32_t kHeader = 1 << 10;
constexpr int kOperations = 25;  // Of each worker.
constexpr Duration kChaos = 8s;

struct Outcome {
    std::uint64_t hash = 0;
    int executions = 0;
    int repeated = 0;
    int overwritten = 0;
    int misread = 0;  // Reads that brought something else than the last write.
    std::string verdict;
    std::uint64_t failovers = 0;
    std::uint64_t fences = 0;
    std::uint64_t replays = 0;
    std::uint64_t joins = 0;
};

// Answers when it has slept as long as a slow disk might; if its server ends first, to nobody.
class Job {
public:
    explicit Job(rtrs::ServerRequest& request) : request_(&request) {}
    Job(Job&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
    ~Job() {
        if (request_ != nullptr) request_->respond(EIO);
    }
    rtrs::ServerRequest& request() { return *request_; }
    void done() { std::exchange(request_, nullptr)->respond(0); }

private:
    rtrs::ServerRequest* request_;
};

class Simulation {
public:
    Simulation(std::uint64_t seed, bool extension)
        : random_(seed ^ 0x7274'7273),
          rails_(2 + seed % 3),
          extension_(extension),
          world_(seed, {.nodes = 2, .rails = rails_, .ipv6 = seed % 5 == 4, .machine = machine()}) {
        depth_ = static_cast<std::uint16_t>(8 << random_.below(3));
        always_invalidate_ = random_.chance(0.3);
        inattentive_ = random_.chance(0.5);
        slow_ = random_.chance(0.7) ? 0.3 : 0.02;
        workers_ = 4 + static_cast<int>(random_.below(16));
        connections_ = static_cast<std::uint16_t>(1 + random_.below(3));
        policy_ = static_cast<rtrs::PathPolicy>(random_.below(3));
    }

    Outcome run() {
        world_.node(0).start("server", [this] { serve(); });
        world_.node(1).start("client", [this] { use(); });
        plan_chaos();
        const std::string running = world_.run_all(600s);
        EXPECT_EQ(running, "") << "requests without an end";
        outcome_.hash = world_.trace_hash();
        outcome_.executions = store_.executions();
        outcome_.repeated = store_.repeated();
        outcome_.overwritten = store_.overwritten();
        outcome_.verdict = store_.verdict();
        return outcome_;
    }

private:
    static MachineConfig machine() {
        MachineConfig config;
        config.memory_bytes = 64 << 20;
        return config;
    }

    // The server's machine.
    void serve() {
        while (!over_) {
            store_.begin_life();
            SimRuntime runtime(++lives_);
            rdma::Loop loop(runtime);
            rdma::TaskGroup jobs(loop);
            {
                rtrs::Server server = open_server(loop, jobs);
                restart_ = false;
                while (!restart_ && !over_) loop.poll_or_wait(loop.after(100ms));
                outcome_.replays += server.statistics().replays;
                outcome_.joins += server.statistics().joins;
            }  // Jobs that are still at work answer to nobody.
        }
    }

    rtrs::Server open_server(rdma::Loop& loop, rdma::TaskGroup& jobs) {
        rtrs::ServerOptions options;
        options.address = world_.world().machine(0).address().is_v4() ? "0.0.0.0" : "::";
        options.queue_depth = depth_;
        options.chunk_size = kChunk;
        options.header_size = kHeader;
        options.always_invalidate = always_invalidate_;
        options.session_linger = 20s;
        // One that is slow to notice depends on the client's fences.
        if (inattentive_) options.heartbeat = rtrs::kKernelHeartbeat;
        return rtrs::Server::open(loop, options,
                                  [this, &loop, &jobs](rtrs::ServerRequest& request) {
                                      jobs.spawn(work(loop, Job(request)));
                                  })
            .value();
    }

    rdma::Task<void> work(rdma::Loop& loop, Job job) {
        if (random_.chance(slow_))
            (void)co_await loop.sleep(std::chrono::milliseconds(random_.below(1500)));
        rtrs::ServerRequest& request = job.request();
        CellMessage message;
        EXPECT_EQ(request.message().size(), sizeof message);
        std::memcpy(&message, request.message().data(), sizeof message);
        if (request.direction() == rtrs::Direction::Write)
            store_.write(message, request.data());
        else
            store_.read(message, request.data());
        job.done();
    }

    // The client's machine.
    void use() {
        SimRuntime runtime(7);
        rdma::Loop loop(runtime);
        sleep_for(1ms);
        loop.run(use_session(loop));
        over_ = true;
        world_.node(0).poke();
    }

    rdma::Task<void> use_session(rdma::Loop& loop) {
        rtrs::Client client(loop);
        rtrs::SessionOptions options;
        options.connections = connections_;
        options.policy = policy_;
        options.connect_timeout = 1s;
        options.queue_if_no_path = 1h;
        options.extension = extension_;
        if (!extension_) options.heartbeat = rtrs::HeartbeatOptions{};
        std::vector<rtrs::PathAddress> paths;
        for (std::size_t rail = 0; rail < rails_; ++rail)
            paths.push_back({to_string(world_.node(0).address(rail))});
        std::optional<rtrs::Session> session;
        while (!session) {
            auto opened = co_await client.open("simulated", paths, options);
            if (opened) session = *std::move(opened);
        }
        rdma::TaskGroup group(loop);
        for (int i = 0; i < workers_; ++i)
            group.spawn(work_on(*session, static_cast<std::uint32_t>(i), loop));
        (void)co_await group.join();
        for (const auto& path : session->statistics().paths) outcome_.failovers += path.failovers;
        outcome_.fences = session->statistics().fences;
        EXPECT_EQ(session->statistics().completed,
                  static_cast<std::uint64_t>(workers_ * kOperations));
        EXPECT_EQ(session->statistics().failed, 0u);
    }

    // Writes and reads one cell; the next version only when the last is there.
    rdma::Task<void> work_on(rtrs::Session session, std::uint32_t cell, rdma::Loop& loop) {
        CellMessage message{cell, 0};
        const auto bytes = std::as_bytes(std::span(&message, 1));
        std::optional<rtrs::SessionBuffer> registered;
        std::vector<std::byte> plain(kChunk - kHeader);
        if (random_.chance(0.5)) registered = session.allocate(plain.size()).value();
        const std::span<std::byte> memory = registered ? registered->bytes() : std::span(plain);
        std::size_t size = 0;
        for (int i = 0; i < kOperations; ++i) {
            if (random_.chance(0.5))
                (void)co_await loop.sleep(std::chrono::milliseconds(random_.below(1000)));
            const bool write = i == 0 || random_.chance(0.5);
            if (write) {
                size = 1 + random_.below(memory.size());
                ++message.version;
                fill_cell(memory.first(size), message);
                auto done = co_await session.write(bytes, memory.first(size));
                EXPECT_TRUE(done) << done.error().why;
            } else {
                std::fill(memory.begin(), memory.end(), std::byte{0});
                const rtrs::Segment parts[] = {memory.first(size / 3),
                                               memory.subspan(size / 3, size - size / 3)};
                auto done = co_await session.read(bytes, parts);
                EXPECT_TRUE(done) << done.error().why;
                std::vector<std::byte> expected(size);
                fill_cell(expected, message);
                outcome_.misread += !std::equal(expected.begin(), expected.end(), memory.begin());
            }
        }
    }

    // Cuts, losses and restarts at times that the seed gives; all is well after kChaos.
    void plan_chaos() {
        Scheduler& scheduler = world_.world().scheduler();
        if (random_.chance(0.5))
            world_.world().set_faults({.loss = 0.02, .duplicate = 0.02, .reorder = 0.05});
        const Instant start = world_.now();
        for (int i = 0; i < 10; ++i) {
            const std::size_t node = random_.below(2), rail = random_.below(rails_);
            Link& up = world_.world().uplink(node, rail);
            Link& down = world_.world().downlink(node, rail);
            const auto ways = random_.below(3);     // One, the other, both.
            const bool late = random_.chance(0.4);  // Delivered afterwards rather than lost.
            const Instant at = start + std::chrono::milliseconds(random_.below(7000));
            const Duration length = std::chrono::milliseconds(50 + random_.below(2000));
            const auto cut = [ways, late, &up, &down](bool yes) {
                if (ways != 1) late ? up.set_held(yes) : up.set_blocked(yes);
                if (ways != 0) late ? down.set_held(yes) : down.set_blocked(yes);
            };
            scheduler.at(at, [cut] { cut(true); });
            scheduler.at(at + length, [cut] { cut(false); });
        }
        if (random_.chance(0.4))
            scheduler.at(start + std::chrono::milliseconds(random_.below(7000)), [this] {
                restart_ = true;
                world_.node(0).poke();
            });
        scheduler.at(start + kChaos, [this] { world_.world().heal(); });
    }

    Prng random_;
    std::size_t rails_;
    bool extension_;
    AbiWorld world_;
    CellStore store_;
    Outcome outcome_;
    std::uint16_t depth_ = 0;
    bool always_invalidate_ = false;
    bool inattentive_ = false;
    double slow_ = 0;
    int workers_ = 0;
    std::uint16_t connections_ = 1;
    rtrs::PathPolicy policy_{};
    std::uint64_t lives_ = 0;
    bool restart_ = false;
    bool over_ = false;
};

TEST(RtrsSim, EveryRequestIsDoneOnceAndNoWriteTakesEffectTwice) {
    Outcome sum;
    for (const std::uint64_t seed : seeds(10)) {
        SCOPED_TRACE(seed);
        const Outcome outcome = Simulation(seed, true).run();
        ASSERT_EQ(outcome.verdict, "");
        ASSERT_EQ(outcome.misread, 0);
        ASSERT_EQ(Simulation(seed, true).run().hash, outcome.hash);
        sum.failovers += outcome.failovers;
        sum.fences += outcome.fences;
        sum.replays += outcome.replays;
        sum.joins += outcome.joins;
        if (testing::Test::HasFailure()) return;
    }
    // The runs must have been what they claim to be.
    EXPECT_GT(sum.failovers, 0u);
    EXPECT_GT(sum.fences, 0u);
    EXPECT_GT(sum.replays + sum.joins, 0u);
}

// The same runs as the kernel's client speaks: what the extension is for must show, or the judge
// sees nothing.
TEST(RtrsSim, WithoutTheExtensionWritesAreRepeated) {
    int repeated = 0;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        SCOPED_TRACE(seed);
        repeated += Simulation(seed, false).run().repeated;
    }
    EXPECT_GT(repeated, 0);
}

}  // namespace
}  // namespace feroce::sim
