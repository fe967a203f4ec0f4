// Sessions of several threads, on loopback: a server whose sessions are spread over workers,
// clients with a session each, and threads that share one session.
#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "feroce/elsewhere.hpp"
#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/rtrs/session_port.hpp"
#include "feroce/task_group.hpp"
#include "feroce/workers.hpp"
#include "rdma/test_until.hpp"
#include "rtrs/server_registry.hpp"

namespace feroce::rtrs::workers_test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kSlots = 64;
constexpr std::size_t kSlotSize = 5000;

ConstSegment message_of(const std::uint32_t& slot) {
    return std::as_bytes(std::span(&slot, 1));
}

std::vector<std::byte> pattern(std::uint32_t slot, int round) {
    std::vector<std::byte> out(kSlotSize);
    for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<std::byte>(i * 31 + slot * 7 + static_cast<unsigned>(round));
    return out;
}

// Keeps what is written into slots, which the message names. A slot is used by one client at a time
// here, so only the note of the serving thread is shared.
class Shelf {
public:
    void handle(ServerRequest& request) {
        {
            const std::lock_guard lock(mutex_);
            threads_.insert(std::this_thread::get_id());
        }
        std::uint32_t slot = 0;
        std::memcpy(&slot, request.message().data(), sizeof slot);
        std::byte* const at = slots_[slot % kSlots].data();
        if (request.direction() == Direction::Write)
            std::memcpy(at, request.data().data(), request.data().size());
        else
            std::memcpy(request.data().data(), at, request.data().size());
        request.respond();
    }
    std::size_t threads() {
        const std::lock_guard lock(mutex_);
        return threads_.size();
    }

private:
    std::array<std::array<std::byte, kSlotSize>, kSlots> slots_{};
    std::mutex mutex_;
    std::set<std::thread::id> threads_;
};

// Writes and reads a slot again and again; counts what was right.
template <class AnySession>
rdma::Task<void> use_slot(AnySession session, std::uint32_t slot, int rounds, int& right) {
    std::vector<std::byte> back(kSlotSize);
    for (int i = 0; i < rounds; ++i) {
        const auto data = pattern(slot, i);
        const auto written = co_await session.write(message_of(slot), data);
        EXPECT_TRUE(written) << written.error().why;
        const auto read = co_await session.read(message_of(slot), back);
        EXPECT_TRUE(read) << read.error().why;
        right += back == data;
    }
}

class WorkerSessions : public testing::Test {
protected:
    Server serve(const rdma::Workers& workers) {
        return Server::open(loop,
                            {.address = "127.0.0.1",
                             .port = 0,
                             .queue_depth = 16,
                             .workers = workers.loops()},
                            [this](ServerRequest& request) { shelf.handle(request); })
            .value();
    }
    // The server's own loop takes the connections, so it runs until somebody has done his work.
    void run_until(const std::atomic<int>& done, int wanted) {
        const Instant end = loop.after(60s);
        while (done.load(std::memory_order_acquire) < wanted && loop.now() < end)
            loop.poll_or_wait(loop.after(10ms));
        ASSERT_EQ(done.load(), wanted);
    }
    bool until(const std::function<bool()>& condition) { return rdma::poll_until(loop, condition); }

    rdma::Loop loop;
    Shelf shelf;
};

TEST_F(WorkerSessions, EachThreadHasASessionOfItsOwn) {
    constexpr int kClients = 4;
    const rdma::Workers workers = rdma::Workers::start(2).value();
    const Server server = serve(workers);
    std::atomic<int> done = 0;
    std::array<int, kClients> right{};
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i)
        clients.emplace_back([&, i] {
            rdma::Loop own;
            Client client(own);
            const auto number = static_cast<std::uint32_t>(i);
            auto session = own.run(client.open("client-" + std::to_string(i), {{"127.0.0.1"}},
                                               {.port = server.port(), .connections = 2}));
            EXPECT_TRUE(session) << session.error().why;
            rdma::TaskGroup users(own);
            for (std::uint32_t k = 0; session && k < 8; ++k)
                users.spawn(use_slot(*session, number * 8 + k, 20, right[number]));
            EXPECT_TRUE(own.run(users.join()));
            if (session) {
                EXPECT_TRUE(own.run(session->close()));
            }
            done.fetch_add(1, std::memory_order_release);
        });
    run_until(done, kClients);
    for (std::thread& client : clients) client.join();
    for (const int count : right) EXPECT_EQ(count, 160);
    EXPECT_EQ(shelf.threads(), 2u) << "the sessions were spread";
    EXPECT_EQ(server.statistics().requests, 4u * 8 * 20 * 2);
    EXPECT_TRUE(until([&] { return server.statistics().sessions == 0; })) << "all were closed";
}

TEST_F(WorkerSessions, OneSessionForManyThreads) {
    const rdma::Workers workers = rdma::Workers::start(1).value();
    const Server server = serve(workers);
    Client client(loop);
    std::optional<Session> session =
        loop.run(client.open("shared", {{"127.0.0.1"}}, {.port = server.port()})).value();
    constexpr int kThreads = 3;
    std::atomic<int> done = 0;
    std::array<int, kThreads> right{};
    std::vector<std::unique_ptr<rdma::Loop>> loops;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        loops.push_back(std::make_unique<rdma::Loop>());
        threads.emplace_back([&, i, port = SessionPort(*session, *loops.back())]() mutable {
            const auto number = static_cast<std::size_t>(i);
            rdma::TaskGroup users(port.loop());
            for (std::uint32_t k = 0; k < 8; ++k)
                users.spawn(
                    use_slot(port, static_cast<std::uint32_t>(i) * 8 + k, 20, right[number]));
            EXPECT_TRUE(port.loop().run(users.join()));
            done.fetch_add(1, std::memory_order_release);
        });
    }
    session.reset();  // The ports keep it.
    run_until(done, kThreads);
    for (std::thread& thread : threads) thread.join();
    for (const int count : right) EXPECT_EQ(count, 160);
    threads.clear();  // With the ports, of which the last lets the session go, in its own thread.
    EXPECT_TRUE(until([&] { return server.statistics().paths == 0; }));
}

rdma::Task<void> use_buffer(SessionPort port, int& right) {
    const std::uint32_t slot = 1;
    rdma::Result<SessionBuffer> buffer = co_await port.allocate(kSlotSize);
    EXPECT_TRUE(buffer) << buffer.error().why;
    const auto data = pattern(slot, 1);
    std::copy(data.begin(), data.end(), buffer->bytes().begin());
    EXPECT_TRUE(co_await port.write(message_of(slot), buffer->bytes()));
    std::fill(buffer->bytes().begin(), buffer->bytes().end(), std::byte{0});
    const std::array<Segment, 2> parts{buffer->bytes().first(1000), buffer->bytes().subspan(1000)};
    EXPECT_TRUE(co_await port.read(message_of(slot), parts));
    right += std::equal(data.begin(), data.end(), buffer->bytes().begin());
    std::vector<std::byte> large(port.max_io_size() + 1);
    EXPECT_EQ((co_await port.write(message_of(slot), large)).error().code, EMSGSIZE);
}

TEST_F(WorkerSessions, MemoryAndErrorsThroughAPort) {
    const rdma::Workers workers = rdma::Workers::start(2).value();
    const Server server = serve(workers);
    Client client(loop);
    const Session session =
        loop.run(client.open("shared", {{"127.0.0.1"}}, {.port = server.port()})).value();
    std::atomic<int> done = 0;
    int right = 0;
    rdma::Loop own;
    std::thread thread([&, port = SessionPort(session, own)]() mutable {
        own.run(use_buffer(port, right));
        const auto counted = own.run(
            rdma::call_on(session.loop(), own, [&] { return session.statistics().completed; }));
        EXPECT_EQ(counted.value(), 2u);
        done.store(1, std::memory_order_release);
    });
    run_until(done, 1);
    thread.join();
    EXPECT_EQ(right, 1);
}

rdma::Task<void> read_once(const SessionPort& port, std::span<std::byte> into) {
    (void)co_await port.read(message_of(0), Segment(into));
}

TEST_F(WorkerSessions, WhatIsGivenUpInAnotherThread) {
    std::vector<ServerRequest*> kept;
    const Server server = Server::open(loop, {.address = "127.0.0.1", .port = 0, .queue_depth = 8},
                                       [&](ServerRequest& request) { kept.push_back(&request); })
                              .value();
    Client client(loop);
    const Session session =
        loop.run(client.open("shared", {{"127.0.0.1"}}, {.port = server.port()})).value();
    std::atomic<int> done = 0;
    rdma::Loop own;
    std::thread thread([&, port = SessionPort(session, own)]() mutable {
        std::vector<std::byte> data(100);
        const auto cut = port.read(message_of(0), data).within(50ms).wait();
        EXPECT_EQ(cut.error().code, ETIMEDOUT);
        std::stop_source source;
        source.request_stop();
        EXPECT_EQ(port.read(message_of(0), data).with(source.get_token()).wait().error().code,
                  ECANCELED);
        {
            rdma::TaskGroup dropped(own);
            dropped.spawn(read_once(port, data));  // In flight when its group is destroyed.
        }
        EXPECT_EQ(data, std::vector<std::byte>(100));
        done.store(1, std::memory_order_release);
    });
    run_until(done, 1);
    thread.join();
    EXPECT_EQ(session.statistics().failed, 2u);
    // The one that was dropped may arrive only now.
    EXPECT_TRUE(until([&] {
        for (ServerRequest* request : std::exchange(kept, {})) request->respond();
        return session.statistics().permits_taken == 0;
    }));
    EXPECT_EQ(session.statistics().paths[0].connects, 1u);
}

TEST_F(WorkerSessions, ANameIsOneSessionWhereverItIsServed) {
    const rdma::Workers workers = rdma::Workers::start(2).value();
    const Server server = serve(workers);
    const auto open = [&](Client& client) {
        return loop.run(client.open("disk", {{"127.0.0.1"}}, {.port = server.port()}));
    };
    Client first(loop), second(loop);
    {
        auto session = open(first);
        ASSERT_TRUE(session) << session.error().why;
        EXPECT_FALSE(open(second)) << "the name is taken, by a session on the other worker";
    }
    // Its client is gone: the next of that name may have it, and the server forgets the old one.
    rdma::Result<Session> next = rdma::Error(EAGAIN, "");
    EXPECT_TRUE(until([&] {
        if (!next) next = open(second);
        return next.has_value();
    })) << next.error().why;
    EXPECT_TRUE(until([&] { return server.statistics().paths == 1; }));
    int right = 0;
    loop.run(use_slot(*next, 3, 5, right));
    EXPECT_EQ(right, 5);
}

TEST(ServerRegistries, ASessionIsOneShards) {
    ServerRegistry registry(2, {.sessions = 2, .bytes = 1000}, 400);
    const Uuid a{{std::byte{1}}}, b{{std::byte{2}}}, c{{std::byte{3}}};
    ASSERT_EQ(registry.shard_of(a), 0u);
    EXPECT_EQ(registry.shard_of(a), 0u);
    EXPECT_EQ(registry.shard_of(b), 1u) << "the one with fewer";
    // The first connection of `a` is refused, the next one is sent elsewhere, and one that was on
    // its way to the first shard comes late.
    registry.forget(a, 0);
    ASSERT_EQ(registry.shard_of(c), 0u);
    registry.forget(b, 1);
    ASSERT_EQ(registry.shard_of(a), 1u);
    EXPECT_EQ(registry.admit(a, 0).error().code, ECONNRESET);
    registry.forget(a, 0);
    EXPECT_TRUE(registry.admit(a, 1)) << "it is still the second's";
    registry.set_paths(a, 1);
    ASSERT_TRUE(registry.claim_name({a, "disk", 1s, "there"}));
    EXPECT_TRUE(registry.admit(c, 0));
    EXPECT_EQ(registry.has_room().error().code, ENOMEM);
    EXPECT_EQ(registry.admit(b, 1).error().code, ENOMEM) << "two are admitted";
    registry.note_sign(a);
    const auto claimed = registry.claim_name({c, "disk"});
    ASSERT_TRUE(claimed && *claimed);
    EXPECT_EQ((*claimed)->session, a);
    EXPECT_EQ((*claimed)->shard, 1u);
    EXPECT_EQ((*claimed)->paths, 1u);
    EXPECT_EQ((*claimed)->signs, 1u);
    EXPECT_EQ((*claimed)->heartbeat, 1s);
    registry.forget(a, 1);
    EXPECT_FALSE(*registry.claim_name({c, "disk"})) << "it is free";
}

TEST(Workers, StayWhereTheyAreTold) {
    cpu_set_t allowed;
    ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int processor = 0;
    while (!CPU_ISSET(static_cast<unsigned>(processor), &allowed)) ++processor;
    const rdma::Workers workers = rdma::Workers::start(2, {.processors = {processor}}).value();
    for (std::size_t i = 0; i < workers.size(); ++i) {
        const int count = workers.call(i, [] {
            cpu_set_t own;
            ::sched_getaffinity(0, sizeof own, &own);
            return CPU_COUNT(&own);
        });
        EXPECT_EQ(count, 1);
        EXPECT_EQ(workers.loop(i).options().vector, i);
    }
    EXPECT_EQ(rdma::Workers::start(1, {.processors = {100'000}}).error().code, EINVAL);
}

TEST(ServerRegistries, ASessionKeepsItsName) {
    ServerRegistry registry(1, {.sessions = 9, .bytes = 9000}, 400);
    const Uuid first{{std::byte{1}}}, renamed{{std::byte{2}}}, unknown{{std::byte{3}}};
    for (const Uuid& session : {first, renamed}) registry.shard_of(session);
    ASSERT_TRUE(registry.claim_name({first, "disk"}));
    ASSERT_TRUE(registry.claim_name({renamed, "other"}));
    EXPECT_EQ(registry.claim_name({renamed, "disk"}).error().code, EPERM);
    EXPECT_EQ(registry.claim_name({unknown, "third"}).error().code, ECONNRESET);
}

}  // namespace
}  // namespace feroce::rtrs::workers_test
