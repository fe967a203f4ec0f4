// Requests of sessions, their opening and their closing, that are given up: stopped, or their
// coroutine destroyed, at each of their suspension points in turn. Afterwards nothing touches the
// caller's memory, no write arrives with what was put there since, no permit is lost, every other
// request goes on, and the server keeps nothing of those who went. As a
// request waits at one point for many things, the same at each round of the loop. The points that
// were visited are printed for each operation; none is a failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "sim/abi_world.hpp"
#include "sim/cancel_points.hpp"
#include "sim/sim_runtime.hpp"

namespace feroce::sim {
namespace {

using namespace std::chrono_literals;
using rdma::Result;
using rdma::Task;

constexpr std::size_t kMost = 2000;
constexpr std::size_t kSize = 6000;
constexpr Duration kSoon = 2s;  // Much less than a server remembers a client.
constexpr std::byte kData{0x11}, kMark{0x5a};

class Stage {
public:
    explicit Stage(std::uint64_t seed) : world_(seed, {.rails = 2, .machine = machine()}) {}

    template <class Program>
    void run(Program program) {
        world_.node(0).start("server", [this] { serve(); });
        world_.node(1).start("client", [&] {
            SimRuntime runtime(7);
            rdma::Loop loop(runtime);
            loop.run(nap(loop, 1ms));
            program(loop);
            over_ = true;
            world_.node(0).poke();
        });
        EXPECT_EQ(world_.run_all(3600s), "");
    }
    Task<Result<rtrs::Session>> open(rtrs::Client& client, std::string name) {
        rtrs::SessionOptions options;
        options.connect_timeout = 1s;
        std::vector<rtrs::PathAddress> paths;
        for (std::size_t rail = 0; rail < 2; ++rail)
            paths.push_back({to_string(world_.node(0).address(rail))});
        return client.open(std::move(name), paths, options);
    }
    std::size_t sessions() { return server_->statistics().sessions; }
    int changed() const { return changed_; }  // Writes that brought something else than kData.

private:
    static MachineConfig machine() {
        MachineConfig config;
        config.memory_bytes = 64 << 20;
        return config;
    }
    void serve() {
        SimRuntime runtime(1);
        rdma::Loop loop(runtime);
        rtrs::ServerOptions options;
        options.address = "0.0.0.0";
        options.queue_depth = 4;
        options.chunk_size = 8 << 10;
        options.header_size = 1 << 10;
        rtrs::Server server = rtrs::Server::open(loop, options, [this, &loop](auto& request) {
                                  return answer(loop, request);
                              }).value();
        server_ = &server;
        while (!over_) loop.poll_or_wait(loop.after(100ms));
    }
    rtrs::HandlerTask answer(rdma::Loop& loop, rtrs::ServerRequest& request) {
        const auto data = request.data();
        const auto is_data = [](std::byte byte) { return byte == kData; };
        if (request.direction() == rtrs::Direction::Write) {
            (void)co_await loop.sleep(50us);
            changed_ += !std::all_of(data.begin(), data.end(), is_data);
        } else {
            (void)co_await loop.sleep(50us);
            std::fill(data.begin(), data.end(), kData);
        }
        co_return data.size();
    }

    AbiWorld world_;
    rtrs::Server* server_ = nullptr;
    int changed_ = 0;
    bool over_ = false;
};

Task<Result<>> request(rtrs::Session session, bool writes, std::span<std::byte> memory) {
    constexpr std::byte kMessage[] = {std::byte{1}};
    const rtrs::Segment parts[] = {memory.first(100), memory.subspan(100)};
    const rtrs::ConstSegment from[] = {memory.first(100), memory.subspan(100)};
    if (writes) co_return co_await session.write(kMessage, from);
    co_return co_await session.read(kMessage, parts);
}

void say(const char* operation, const char* memory, Way way, std::size_t points) {
    std::printf("session %-6s %-17s %-17s %4zu\n", operation, memory, way.name(), points);
    EXPECT_GT(points, 0u);
    ASSERT_FALSE(testing::Test::HasFailure()) << operation << " " << way.name();
}

// False: the request has fewer points. `busy`: all permits are taken, so that it waits for one.
bool give_up(rdma::Loop& loop, const rtrs::Session& session, bool writes, bool busy,
             std::span<std::byte> memory, std::size_t k, Way way) {
    std::vector<std::vector<std::byte>> others(busy ? 4 : 0, std::vector<std::byte>(kSize, kData));
    rdma::TaskGroup group(loop);
    std::vector<std::optional<Result<>>> done(others.size());
    for (std::size_t i = 0; i < others.size(); ++i)
        group.spawn(keep(request(session, i % 2 == 0, others[i]), done[i]));
    std::fill(memory.begin(), memory.end(), kData);
    bool reached = false;
    expect_cancelled(run_until(loop, request(session, writes, memory), k, way, reached));
    std::fill(memory.begin(), memory.end(), kMark);
    std::vector<std::byte> after(kSize);
    const auto next = loop.run(request(session, false, after).until(loop.after(kSoon)));
    EXPECT_TRUE(next) << next.error().why;
    EXPECT_EQ(std::count(after.begin(), after.end(), kData), std::ssize(after));
    EXPECT_TRUE(wait_for(loop, kSoon, [&] {
        const rtrs::SessionStatistics now = session.statistics();
        return group.empty() && now.permits_taken == 0 && now.permit_waiters == 0;
    })) << "a permit is lost";
    for (const auto& one : done) EXPECT_TRUE(one && *one) << "it was another's";
    EXPECT_EQ(std::count(memory.begin(), memory.end(), kMark), std::ssize(memory))
        << "written after it was given up";
    return reached;
}

void visit(bool writes, bool registered, bool busy) {
    for (const Way way : kWays) {
        std::size_t points = 0;
        Stage stage(3);
        stage.run([&](rdma::Loop& loop) {
            rtrs::Client client(loop);
            auto session = loop.run(stage.open(client, "victim"));
            ASSERT_TRUE(session) << session.error().why;
            std::vector<std::byte> plain(kSize);
            const auto own = session->allocate(kSize);
            ASSERT_TRUE(own);
            for (std::size_t k = 1; k <= kMost && !testing::Test::HasFailure(); ++k) {
                SCOPED_TRACE("point " + std::to_string(k));
                if (!give_up(loop, *session, writes, busy, registered ? own->bytes() : plain, k,
                             way))
                    break;
                points = k;
            }
            EXPECT_EQ(stage.changed(), 0) << "a write brought what was put there later";
        });
        say(writes ? "write" : "read",
            busy ? "among others" : (registered ? "registered memory" : "plain memory"), way,
            points);
    }
}

TEST(RtrsCancel, Read) {
    visit(false, false, false);
}

TEST(RtrsCancel, ReadIntoRegisteredMemory) {
    visit(false, true, false);
}

TEST(RtrsCancel, ReadAmongOthers) {
    visit(false, false, true);
}

TEST(RtrsCancel, Write) {
    visit(true, false, false);
}

TEST(RtrsCancel, WriteFromRegisteredMemory) {
    visit(true, true, false);
}

TEST(RtrsCancel, WriteAmongOthers) {
    visit(true, false, true);
}

// A client that went, wherever it was, leaves nothing; its name is free.
template <class GiveUp>
void visit_ends(const char* operation, GiveUp give_up) {
    for (const Way way : kWays) {
        std::size_t points = 0;
        Stage stage(5);
        stage.run([&](rdma::Loop& loop) {
            for (std::size_t k = 1; k <= kMost && !testing::Test::HasFailure(); ++k) {
                SCOPED_TRACE("point " + std::to_string(k));
                bool reached = false;
                give_up(stage, loop, k, way, reached);
                EXPECT_TRUE(wait_for(loop, kSoon, [&] { return stage.sessions() == 0; }))
                    << "the server keeps a session";
                if (!reached) break;
                points = k;
            }
            rtrs::Client client(loop);
            const auto session = loop.run(stage.open(client, "victim"));
            EXPECT_TRUE(session) << session.error().why;
        });
        say(operation, "", way, points);
    }
}

TEST(RtrsCancel, Open) {
    visit_ends("open", [](Stage& stage, rdma::Loop& loop, std::size_t k, Way way, bool& reached) {
        rtrs::Client client(loop);
        expect_cancelled(run_until(loop, stage.open(client, "victim"), k, way, reached));
    });
}

TEST(RtrsCancel, Close) {
    visit_ends("close", [](Stage& stage, rdma::Loop& loop, std::size_t k, Way way, bool& reached) {
        rtrs::Client client(loop);
        const auto session = loop.run(stage.open(client, "victim"));
        ASSERT_TRUE(session) << session.error().why;
        expect_cancelled(run_until(loop, Task<Result<>>(session->close()), k, way, reached));
    });
}

}  // namespace
}  // namespace feroce::sim
