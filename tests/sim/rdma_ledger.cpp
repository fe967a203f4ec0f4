#include "sim/rdma_ledger.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace feroce::sim {
namespace {

using namespace rdma;
using rdma::Result;  // And not the rooms' own.
using namespace std::chrono_literals;

constexpr std::uint32_t kMessage = 300;
constexpr int kSteps = 6;  // Of a worker.

std::size_t page_number(std::size_t client, std::size_t round, std::size_t worker) {
    return (client * Ledger::kRounds + round) * Ledger::kWorkers + worker;
}

void fill(std::span<std::byte> page, std::uint64_t salt) {
    for (std::size_t i = 0; i < page.size(); ++i) page[i] = static_cast<std::byte>(i * 7 + salt);
}

// Echoes until the connection closes or all is over.
Task<void> echo(Connection connection) {
    Buffer message = connection.allocate(kMessage).value();
    for (;;) {
        Result<Received> got = co_await connection.receive(message.local());
        if (!got) co_return;
        EXPECT_EQ(got->size, kMessage);
        if (!co_await connection.send(message.local())) co_return;
    }
}

Task<void> admit(Loop& loop, ConnectionRequest request, const Buffer& memory, ibv_pd* domain) {
    ConnectionOptions options;
    options.domain = domain;
    Result<Connection> made =
        co_await std::move(request).accept(loop, options, PrivateData::of(memory.remote()));
    if (made) co_await echo(*std::move(made));
}

// What the workers of one connection share.
struct Desk {
    Loop& loop;
    Ledger& ledger;
    Connection connection;
    RemoteRegion memory;
    bool echoing = false;  // One echo at a time: answers are told apart by nothing.
};

template <class T>
bool judge(Ledger& ledger, const Result<T>& outcome) {
    if (outcome) return true;
    EXPECT_FALSE(outcome.error().why.empty());
    ++(outcome.error().code == ETIMEDOUT ? ledger.given_up : ledger.broken);
    return false;
}

// Most have ample time, some hardly any.
Instant deadline(Loop& loop) {
    const std::uint64_t dice = loop.runtime().random() % 40;
    return loop.after(dice == 0 ? Duration(5us) : Duration(100s));
}

Task<bool> add(Desk& desk) {
    ++desk.ledger.adds_begun;
    Result<std::uint64_t> old = co_await desk.connection.fetch_add(desk.memory.subregion(0, 8), 1)
                                    .until(deadline(desk.loop));
    if (!judge(desk.ledger, old)) co_return false;
    EXPECT_LT(*old, desk.ledger.adds_begun);
    ++desk.ledger.adds_done;
    co_return true;
}

Task<bool> write_and_verify(Desk& desk, Buffer& here, RemoteRegion page) {
    const auto written = here.local(0, Ledger::kPage);
    const auto read = here.local(Ledger::kPage, Ledger::kPage);
    fill(written.bytes(), desk.loop.runtime().random());
    std::array list{Work::write(page, written), Work::read(read, page)};
    Result<> done = co_await desk.connection.batch(list).until(deadline(desk.loop));
    if (!judge(desk.ledger, done)) co_return false;
    EXPECT_EQ(std::memcmp(written.data(), read.data(), Ledger::kPage), 0);
    ++desk.ledger.pages_verified;
    co_return true;
}

Task<bool> exchange(Desk& desk, Buffer& here) {
    if (desk.echoing) co_return true;
    desk.echoing = true;
    const auto sent = here.local(0, kMessage);
    const auto answer = here.local(kMessage, kMessage);
    fill(sent.bytes(), desk.loop.runtime().random());
    std::optional<Result<Received>> got;
    TaskGroup receiver(desk.loop);
    receiver.spawn([](Desk& at, LocalRegion into, auto& out) -> Task<void> {
        out = co_await at.connection.receive(into);
    }(desk, answer, got));
    Result<> done = co_await desk.connection.send(sent);
    EXPECT_TRUE(co_await receiver.join());
    desk.echoing = false;
    if (!judge(desk.ledger, done) || !judge(desk.ledger, *got)) co_return false;
    EXPECT_EQ(std::memcmp(sent.data(), answer.data(), kMessage), 0);
    ++desk.ledger.echoes;
    co_return true;
}

Task<void> toil(Desk& desk, RemoteRegion page) {
    Buffer here = desk.connection.allocate(2 * Ledger::kPage).value();
    for (int step = 0; step < kSteps; ++step) {
        bool good = false;
        switch (desk.loop.runtime().random() % 3) {
            case 0:
                good = co_await add(desk);
                break;
            case 1:
                good = co_await write_and_verify(desk, here, page);
                break;
            default:
                good = co_await exchange(desk, here);
        }
        if (!good) co_return;
    }
}

}  // namespace

Task<void> keep(Loop& loop, Listener& listener, Ledger& ledger) {
    Device device = Device::open(listener.address()).value();
    ProtectionDomain domain = ProtectionDomain::create(device.raw()).value();
    const std::size_t pages = ledger.clients * Ledger::kRounds * Ledger::kWorkers;
    Buffer memory = Buffer::create(domain.raw(), loop.runtime().memory(),
                                   (1 + pages) * Ledger::kPage, Access::Remote)
                        .value();
    {
        TaskGroup echoes(loop);
        for (;;) {
            Result<ConnectionRequest> request = co_await listener.next();
            if (!request) break;
            echoes.spawn(admit(loop, *std::move(request), memory, domain.raw()));
        }
    }
    std::memcpy(&ledger.counter, memory.data(), sizeof ledger.counter);
}

Task<void> work(Loop& loop, Address server, std::size_t client, Ledger& ledger) {
    for (std::size_t round = 0; round < Ledger::kRounds; ++round) {
        ConnectionOptions options{.send_depth = 6, .timeout = 100s};
        Result<Connection> made = co_await Connection::connect(loop, server, options);
        if (!made) {
            EXPECT_FALSE(made.error().why.empty());
            ++ledger.not_connected;
            continue;
        }
        Desk desk{loop, ledger, *std::move(made), {}, false};
        desk.memory = desk.connection.peer_data().as<RemoteRegion>();
        TaskGroup workers(loop);
        for (std::size_t worker = 0; worker < Ledger::kWorkers; ++worker) {
            const std::size_t at = (1 + page_number(client, round, worker)) * Ledger::kPage;
            workers.spawn(toil(desk, desk.memory.subregion(at, Ledger::kPage)));
        }
        EXPECT_TRUE(co_await workers.join());
    }
}

}  // namespace feroce::sim
