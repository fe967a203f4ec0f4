// Clients that come at the same time: the server takes one connection a round, and all get in.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "feroce/rdma.hpp"
#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/task_group.hpp"
#include "rdma/test_until.hpp"
#include "rtrs/handshake.hpp"
#include "rtrs/runtime_random.hpp"

namespace feroce::rtrs::newcomers_test {
namespace {

using namespace std::chrono_literals;

ServerOptions small() {
    ServerOptions out;
    out.address = "127.0.0.1";
    out.port = 0;
    out.queue_depth = 16;
    out.chunk_size = 16 << 10;
    return out;
}

SessionOptions to(std::uint16_t port, std::uint16_t connections) {
    SessionOptions out;
    out.port = port;
    out.connections = connections;
    out.connect_timeout = 60s;
    return out;
}

// A server with a thread of its own, as clients on other machines find it.
class ThreadedServer {
public:
    ThreadedServer() {
        while (port_ == 0) std::this_thread::yield();
    }
    ~ThreadedServer() { stop_ = true; }
    std::uint16_t port() const { return port_; }

private:
    void run() {
        rdma::Loop loop{runtime_};
        Server server =
            Server::open(loop, small(), [](ServerRequest& request) { request.respond(); }).value();
        port_ = server.port();
        while (!stop_) loop.poll_or_wait(loop.after(1ms));
    }

    rdma::RealRuntime runtime_;
    std::atomic<bool> stop_{false};
    std::atomic<std::uint16_t> port_{0};
    std::jthread thread_{[this] { run(); }};
};

TEST(Newcomers, OneClientMayHaveMoreConnectionsThanNewcomersMayWait) {
    const ThreadedServer server;
    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    Client client{loop};
    const auto session = loop.run(client.open("many", {{"127.0.0.1"}}, to(server.port(), 140)));
    EXPECT_TRUE(session) << session.error().why;
}

TEST(Newcomers, ClientsThatComeAtOnceAllGetIn) {
    constexpr int kClients = 30;
    const ThreadedServer server;
    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    std::vector<std::unique_ptr<Client>> clients;
    std::vector<Session> sessions;
    rdma::TaskGroup tasks(loop);
    const auto come = [&](Client& client, std::string name) -> rdma::Task<void> {
        const std::vector<PathAddress> at{{"127.0.0.1"}};
        auto session = co_await client.open(name, at, to(server.port(), 8));
        EXPECT_TRUE(session) << session.error().why;
        if (session) sessions.push_back(*std::move(session));
    };
    for (int i = 0; i < kClients; ++i) {
        clients.push_back(std::make_unique<Client>(loop));
        tasks.spawn(come(*clients.back(), "client-" + std::to_string(i)));
    }
    EXPECT_TRUE(loop.run(tasks.join()));
    EXPECT_EQ(sessions.size(), std::size_t{kClients});
}

// Its clock can be set forward.
class SkippingRuntime final : public rdma::Runtime {
public:
    Instant now() override { return real_.now() + skipped_; }
    void wait(Instant until, std::span<const int> fds) override {
        real_.wait(until - skipped_, fds);
    }
    void wake() override { real_.wake(); }
    void relax() override { real_.relax(); }
    std::uint64_t random() override { return real_.random(); }
    std::pmr::memory_resource& memory() override { return real_.memory(); }

    void skip(Duration time) { skipped_ += time; }
    // What the machine needs for its work does not count.
    void skip_to(Instant when) { skipped_ += std::max(when - now(), Duration{}); }

private:
    rdma::RealRuntime real_;
    Duration skipped_{};
};

// A client that opens the connections of a path by hand.
class SlowClient {
public:
    explicit SlowClient(std::uint16_t count) {
        RuntimeRandom random{runtime};
        request_.connection_count = count;
        request_.reconnects = 1;
        request_.path = Uuid::random(random);
        request_.session = Uuid::random(random);
        request_.may_create = true;
        request_.extension = kExtensionLevel;
    }
    ::testing::AssertionResult connect(std::uint16_t number) {
        std::array<std::byte, ConnectRequest::kSize> bytes;
        request_.connection = number;
        request_.emit(bytes);
        auto made = loop.run(
            rdma::Connection::connect(loop, rdma::Address("127.0.0.1").with_port(server.port()), {},
                                      rdma::PrivateData(bytes)));
        if (!made) return ::testing::AssertionFailure() << made.error().why;
        connections.push_back(*std::move(made));
        return ::testing::AssertionSuccess();
    }

    SkippingRuntime runtime;
    rdma::Loop loop{runtime};
    Server server =
        Server::open(loop, small(), [](ServerRequest& request) { request.respond(); }).value();
    std::vector<rdma::Connection> connections;

private:
    ConnectRequest request_;
};

TEST(Newcomers, APathThatGetsFurtherIsGivenItsTimeAgain) {
    constexpr std::uint16_t kConnections = 12;
    SlowClient client(kConnections);
    for (std::uint16_t i = 0; i < kConnections; ++i) {
        client.runtime.skip(3s);  // Less than the server waits for the end of one handshake.
        ASSERT_TRUE(client.connect(i)) << "connection " << i;
    }
    EXPECT_TRUE(client.connections[0].is_open());
    client.runtime.skip(31s);
    EXPECT_TRUE(rdma::poll_until(client.loop, [&] { return !client.connections[0].is_open(); }));
    EXPECT_EQ(client.server.statistics().last_refusal, "the path was not set up in time");
}

TEST(Newcomers, APathThatGetsFurtherForEverIsClosed) {
    constexpr int kSteps = 95;
    SlowClient client(300);
    ASSERT_TRUE(client.connect(0));
    const Instant begun = client.runtime.now();
    for (int i = 1; i < kSteps; ++i) {
        client.runtime.skip_to(begun + i * 3s);
        ASSERT_TRUE(client.connect(static_cast<std::uint16_t>(i))) << "connection " << i;
    }
    EXPECT_TRUE(client.connections[0].is_open());
    client.runtime.skip_to(begun + 301s);  // Less than there is for one step.
    EXPECT_FALSE(client.connect(kSteps));
    EXPECT_TRUE(rdma::poll_until(client.loop, [&] { return !client.connections[0].is_open(); }));
}

// Refuses once.
class PoorRuntime final : public rdma::Runtime, public std::pmr::memory_resource {
public:
    Instant now() override { return real_.now(); }
    void wait(Instant until, std::span<const int> fds) override { real_.wait(until, fds); }
    void wake() override { real_.wake(); }
    void relax() override { real_.relax(); }
    std::uint64_t random() override { return real_.random(); }
    std::pmr::memory_resource& memory() override { return *this; }

    std::atomic<bool> refuses{false};

private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
        if (refuses.exchange(false)) throw std::bad_alloc();
        return real_.memory().allocate(bytes, alignment);
    }
    void do_deallocate(void* at, std::size_t bytes, std::size_t alignment) override {
        real_.memory().deallocate(at, bytes, alignment);
    }
    bool do_is_equal(const memory_resource& other) const noexcept override {
        return this == &other;
    }

    rdma::RealRuntime real_;
};

TEST(Newcomers, OneWithoutMemoryIsTheOnlyOneRefused) {
    PoorRuntime poor;
    rdma::Loop worker{poor};
    worker.on_exception([](const std::exception_ptr&) {});
    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    std::atomic<bool> stop{false};
    const std::jthread thread([&] {
        while (!stop) worker.poll();
    });
    {
        ServerOptions options = small();
        options.workers = {&worker};
        Server server =
            Server::open(loop, options, [](ServerRequest& request) { request.respond(); }).value();
        Client client{loop};
        const auto open = [&](const char* name) {
            return loop.run(client.open(name, {{"127.0.0.1"}}, to(server.port(), 1)));
        };
        EXPECT_TRUE(open("first"));
        poor.refuses = true;
        static_cast<void>(open("second"));
        const auto third = open("third");
        EXPECT_TRUE(third) << third.error().why;
    }
    stop = true;
}

}  // namespace
}  // namespace feroce::rtrs::newcomers_test
