// Ends of servers and sessions while something arrives: what still comes finds nobody and harms
// nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/task_group.hpp"
#include "rdma/test_until.hpp"

namespace feroce::rtrs {
namespace {

using namespace std::chrono_literals;

// Client and server have loops of their own, driven by this thread: what arrives at either stays in
// its completion queue until that loop is polled.
class Lifetime : public testing::Test {
protected:
    void serve() {
        ServerOptions options;
        options.port = 0;
        options.queue_depth = 16;
        options.chunk_size = 16 << 10;
        server = Server::open(server_loop, options, [this](ServerRequest& request) {
                     ++handled;
                     request.respond();
                 }).value();
    }
    static rdma::Task<void> open_one(Client& client, std::string name, std::uint16_t port,
                                     std::optional<Session>& out) {
        const std::vector<PathAddress> paths{{"127.0.0.1"}, {"::1"}};
        SessionOptions options;
        options.port = port;
        auto opened = co_await client.open(std::move(name), paths, options);
        EXPECT_TRUE(opened) << opened.error().why;
        if (opened) out = *opened;
    }
    static bool both_up(const Session& session) {
        const auto now = session.statistics();
        return now.paths[0].connects > 0 && now.paths[1].connects > 0;
    }
    Session open(const std::string& name) {
        std::optional<Session> out;
        rdma::TaskGroup group(client_loop);
        group.spawn(open_one(client, name, server->port(), out));
        while (!group.empty() || (out && !both_up(*out))) {
            client_loop.poll();
            server_loop.poll();
        }
        return out.value();
    }
    static rdma::Task<void> write(Session session) {
        (void)co_await session.write({}, ConstSegment{});
    }
    void poll_for(rdma::Loop& loop, Duration time) {
        for (const Instant until = loop.after(time); loop.now() < until;) loop.poll();
    }

    rdma::RealRuntime runtime;
    rdma::Loop server_loop{runtime};
    rdma::Loop client_loop{runtime};
    std::optional<Server> server;
    Client client{client_loop};
    int handled = 0;
};

TEST_F(Lifetime, AServerIsDestroyedWhileRequestsOfSeveralSessionsArrive) {
    serve();
    const Session sessions[] = {open("first"), open("second"), open("third")};
    {
        rdma::TaskGroup group(client_loop);
        for (const Session& session : sessions) group.spawn(write(session));
        poll_for(client_loop, 50ms);  // They lie in the server's queue, which nobody polls.
        server.reset();
    }
    EXPECT_EQ(handled, 0);
}

// One loop for both ends. First the client goes, then the server, and the request at last: until
// then its session is remembered (Admission.ASessionIsNotForgottenWhileARequestRuns).
TEST_F(Lifetime, ARequestOutlivesItsSessionAndTheServer) {
    ServerOptions options;
    options.port = 0;
    options.queue_depth = 16;
    options.session_linger = 10ms;
    std::optional<Responder> kept;
    server = Server::open(client_loop, options, [&](ServerRequest& request) {
                 kept = request.defer();
             }).value();
    {
        SessionOptions wanted;
        wanted.port = server->port();
        const Session session =
            client_loop.run(client.open("short", {{"127.0.0.1"}}, wanted)).value();
        rdma::TaskGroup group(client_loop);
        group.spawn(write(session));
        ASSERT_TRUE(rdma::poll_until(client_loop, [&] { return kept.has_value(); }));
    }
    ASSERT_TRUE(rdma::poll_until(client_loop, [&] { return server->statistics().paths == 0; }));
    server.reset();
    kept.reset();
}

// The heartbeats of both ends are due many times meanwhile.
TEST_F(Lifetime, AHandlerThatBlocksForASecondLosesNoPath) {
    ServerOptions options;
    options.port = 0;
    options.queue_depth = 16;
    Server blocking = Server::open(server_loop, options, [](ServerRequest& request) {
                          if (!request.message().empty()) std::this_thread::sleep_for(1s);
                          request.respond();
                      }).value();
    std::atomic<bool> done = false;    // Release and acquire order the counts behind it.
    std::atomic<bool> judged = false;  // The session lives until then.
    std::uint64_t connects = 0, failovers = 0;
    std::thread user([&] {
        const std::vector<PathAddress> paths{{"127.0.0.1"}, {"::1"}};
        SessionOptions wanted;
        wanted.port = blocking.port();
        const Session session = client_loop.run(client.open("blocked", paths, wanted)).value();
        const std::byte block[1] = {};
        for (int i = 0; i < 20; ++i) {
            const auto message = i % 10 == 9 ? ConstSegment(block) : ConstSegment();
            EXPECT_TRUE(session.write(message, ConstSegment{}).wait());
        }
        for (const PathStatistics& path : session.statistics().paths) {
            connects += path.connects;
            failovers += path.failovers;
        }
        done.store(true, std::memory_order_release);
        judged.wait(false, std::memory_order_acquire);
    });
    while (!done.load(std::memory_order_acquire)) server_loop.poll_or_wait(server_loop.after(1ms));
    EXPECT_EQ(connects, 2u);
    EXPECT_EQ(failovers, 0u);
    EXPECT_EQ(blocking.statistics().paths_closed, 0u);
    judged.store(true, std::memory_order_release);
    judged.notify_all();
    user.join();
}

TEST_F(Lifetime, SessionsAreDestroyedWhileAnswersArrive) {
    serve();
    std::vector<Session> sessions{open("first"), open("second")};
    {
        rdma::TaskGroup group(client_loop);
        for (const Session& session : sessions)
            for (int i = 0; i < 8; ++i) group.spawn(write(session));
        client_loop.poll();
        poll_for(server_loop, 50ms);  // The answers lie in the client's queue.
    }
    EXPECT_GT(handled, 0);
    sessions.clear();
}

}  // namespace
}  // namespace feroce::rtrs
