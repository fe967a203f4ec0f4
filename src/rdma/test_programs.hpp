// Programs on the library that tests run over real sockets on loopback and simulated alike.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "feroce/rdma.hpp"

namespace feroce::rdma::test {

inline constexpr std::uint16_t kPort = 7471;
inline constexpr std::size_t kBytes = 64 * 1024;

inline std::byte pattern(std::size_t at, unsigned seed) {
    return static_cast<std::byte>(at * 31 + seed);
}

inline void fill(std::span<std::byte> bytes, unsigned seed) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(i, seed);
}

inline bool holds(std::span<const std::byte> bytes, unsigned seed) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
        if (bytes[i] != pattern(i, seed)) return false;
    return true;
}

// Counts its completions.
struct Counter : Operation {
    Counter() {
        complete = [](Operation& self, const ibv_wc& wc) {
            auto& counter = static_cast<Counter&>(self);
            ++counter.completions;
            counter.last = wc;
            if (wc.status != IBV_WC_SUCCESS) ++counter.failures;
        };
    }
    int completions = 0;
    int failures = 0;
    ibv_wc last{};  // Of a flushed receive the opcode says nothing.
};

// Offers memory to each of so many peers, one after the other, until it closes. The
// first message, unless an immediate, is answered with the bytes it brought.
inline Task<void> serve(Loop& loop, Listener& listener, int peers) {
    for (int i = 0; i < peers; ++i) {
        Result<ConnectionRequest> request = co_await listener.next();
        EXPECT_TRUE(request) << request.error().why;
        if (!request) co_return;
        Result<Connection> made = std::move(*request).prepare(loop);
        EXPECT_TRUE(made) << made.error().why;
        if (!made) co_return;
        Connection connection = *std::move(made);
        Buffer memory = connection.allocate(kBytes, Access::Remote).value();
        Buffer inbox = connection.allocate(kBytes).value();
        Counter arrival;
        EXPECT_TRUE(connection.post_receive(inbox.local(), arrival));
        Result<> accepted = co_await connection.accept(PrivateData::of(memory.remote()));
        EXPECT_TRUE(accepted) << accepted.error().why;
        while (arrival.completions == 0 && connection.is_open())
            (void)co_await loop.sleep(std::chrono::milliseconds(1));
        if (arrival.failures == 0 && arrival.last.opcode == IBV_WC_RECV) {
            Result<> sent = co_await connection.send(inbox.local(0, arrival.last.byte_len));
            EXPECT_TRUE(sent) << sent.error().why;
        }
        EXPECT_TRUE(co_await connection.closed());
        EXPECT_EQ(connection.cause()->code, ECONNRESET) << connection.cause()->why;
    }
}

// Every operation once, awaited.
inline Task<void> use(Loop& loop, Address server, ConnectionOptions options = {}) {
    Result<Connection> made = co_await Connection::connect(loop, std::move(server), options);
    EXPECT_TRUE(made) << made.error().why;
    if (!made) co_return;
    Connection connection = *std::move(made);
    const auto remote = connection.peer_data().as<RemoteRegion>();
    EXPECT_EQ(remote.size, kBytes);
    Buffer here = connection.allocate(kBytes).value();
    fill(here.bytes(), 1);
    Result<> done = co_await connection.write(remote, here.local());
    EXPECT_TRUE(done) << done.error().why;
    std::memset(here.data(), 0, here.size());
    done = co_await connection.read(here.local(), remote);
    EXPECT_TRUE(done) << done.error().why;
    EXPECT_TRUE(holds(here.bytes(), 1));

    const std::uint64_t zero = 0;
    const auto zeros = LocalRegion::unregistered(std::as_bytes(std::span(&zero, 1)));
    const RemoteRegion word = remote.subregion(8, 8);
    std::array list{Work::write(word, zeros).inline_data()};
    done = co_await connection.batch(list);
    EXPECT_TRUE(done) << done.error().why;
    EXPECT_EQ((co_await connection.fetch_add(word, 5)).value(), 0u);
    EXPECT_EQ((co_await connection.compare_swap(word, 5, 9)).value(), 5u);
    EXPECT_EQ((co_await connection.compare_swap(word, 5, 11)).value(), 9u);

    Counter answer;
    EXPECT_TRUE(connection.post_receive(here.local(0, 4096), answer));
    done = co_await connection.send(here.local(4096, 100));
    EXPECT_TRUE(done) << done.error().why;
    while (answer.completions == 0) (void)co_await loop.sleep(std::chrono::milliseconds(1));
    EXPECT_EQ(answer.last.status, IBV_WC_SUCCESS);
    EXPECT_EQ(answer.last.byte_len, 100u);
    EXPECT_EQ(std::memcmp(here.data(), here.data() + 4096, 100), 0);
}

// The same bytes, by raw posts: three writes with one doorbell, of which the last is signalled.
inline Task<void> use_raw(Loop& loop, Address server) {
    Connection connection = (co_await Connection::connect(loop, std::move(server))).value();
    const auto remote = connection.peer_data().as<RemoteRegion>();
    Buffer here = connection.allocate(kBytes).value();
    fill(here.bytes(), 2);
    Counter last, silent, immediate;
    std::array list{Work::write(remote.subregion(0, 1000), here.local(0, 1000)).watch(silent),
                    Work::write(remote.subregion(1000, 2000), here.local(1000, 2000)).watch(silent),
                    Work::write(remote.subregion(3000, 3000), here.local(3000, 3000)).signal(last)};
    EXPECT_TRUE(connection.post(list));
    EXPECT_TRUE(connection.post(
        Work::write_imm(remote.subregion(6000, 500), here.local(6000, 500), 42).signal(immediate)));
    while (immediate.completions == 0) (void)co_await loop.sleep(std::chrono::microseconds(100));
    EXPECT_EQ(last.completions, 1);
    EXPECT_EQ(silent.completions, 0);
    EXPECT_EQ(last.failures + immediate.failures, 0);
    std::array parts{here.local(10'000, 2500), here.local(20'000, 4000)};
    Result<> done = co_await connection.read(parts, remote.subregion(0, 6500));
    EXPECT_TRUE(done) << done.error().why;
    EXPECT_EQ(std::memcmp(here.data(), here.data() + 10'000, 2500), 0);
    EXPECT_EQ(std::memcmp(here.data() + 2500, here.data() + 20'000, 4000), 0);
}

}  // namespace feroce::rdma::test
