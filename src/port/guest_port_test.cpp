// A guest that loses its relay and gets its seat again, at a relay in this process or at none.
#include "port/guest_port.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "mem/memory.hpp"
#include "port/clock.hpp"
#include "port/network.hpp"
#include "port/relay_server.hpp"

namespace feroce::port::guest_port_test {
namespace {

using std::chrono::seconds;

constexpr std::uint32_t kSlot = kChunkMembers;  // The first of a guest.
static_assert(is_guest_slot(kSlot));

std::uint16_t test_port() {
    return static_cast<std::uint16_t>(20000 + ::getpid() % 20000);
}

class NoEvents final : public device::EventListener {
public:
    void on_qp_event(transport::QueuePair&, transport::AsyncEventType) override {}
    void on_srq_event(transport::ReceiveQueue&, transport::AsyncEventType) override {}
};

struct Pair {
    Pair() {
        int fds[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
        guest = Fd(fds[0]);
        relay = Fd(fds[1]);
    }
    Fd guest, relay;
};

RelaySeat seat_of(Fd connection, std::uint32_t slot, std::uint64_t token) {
    RelaySeat seat;
    seat.connection = std::move(connection);
    seat.slot = static_cast<SlotNumber>(slot);
    seat.token = token;
    return seat;
}

// Seated with token 5 at a relay that is this test, which ends the connection.
class GuestPortTest : public testing::Test {
protected:
    using SeatAgain = std::function<Result<PortEntry>(FormerSeat)>;

    void open(SeatAgain seat_again) {
        GuestPort::Settings settings{*Network::enter(), random, test_port(), {}, {}, tokens};
        settings.seat_again = [this, inner = std::move(seat_again)](FormerSeat before) {
            asked.push_back(before.token);
            return inner(before);
        };
        auto opened = GuestPort::open(seat_of(std::move(first.guest), kSlot, 5), settings);
        ASSERT_TRUE(opened.has_value());
        port = std::move(*opened);
        device::Engine::Config config;
        config.slot = kSlot;
        engine = std::make_unique<device::Engine>(
            config, device::Engine::Parts{memory, xrc, *port, events, random});
    }
    void TearDown() override {
        engine.reset();
        port.reset();
    }
    void lose_relay() {
        first.relay.reset();
        (void)port->poll(monotonic_now(), *engine);
    }
    void wait_once() { (void)port->wait(monotonic_now()); }

    Prng random{11};
    NoEvents events;
    mem::Memory memory{mem::Limits{}, random};
    device::XrcDomains xrc;
    std::shared_ptr<SeatTokens> tokens = std::make_shared<SeatTokens>();
    Pair first;
    std::vector<std::uint64_t> asked;  // With which tokens.
    std::unique_ptr<host::HostPort> port;
    std::unique_ptr<device::Engine> engine;
};

TEST_F(GuestPortTest, KeepsItsTokenWhileItIsOfferedAnotherSlot) {
    open([](FormerSeat) -> Result<PortEntry> {
        return PortEntry{nullptr, seat_of(Pair().guest, kSlot + 1, 6)};
    });
    lose_relay();
    for (int i = 0; i < 2; ++i) wait_once();
    EXPECT_EQ(asked, (std::vector<std::uint64_t>{5, 5}));
    EXPECT_EQ(tokens->all(), Tokens{5});
}

// No descriptor as high as the connection's is allowed any more.
class FewFiles {
public:
    explicit FewFiles(int below) {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const rlimit few{static_cast<rlim_t>(below), before_.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &few);
    }
    ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

private:
    rlimit before_{};
};

TEST_F(GuestPortTest, KeepsItsTokenWhenItCannotUseTheNewConnection) {
    const int connection = first.guest.get();
    Pair second, third;
    std::optional<FewFiles> few;
    open([&](FormerSeat) -> Result<PortEntry> {
        if (asked.size() > 1) return PortEntry{nullptr, seat_of(std::move(third.guest), kSlot, 7)};
        few.emplace(connection);
        return PortEntry{nullptr, seat_of(std::move(second.guest), kSlot, 6)};
    });
    lose_relay();
    wait_once();
    few.reset();
    EXPECT_EQ(tokens->all(), Tokens{5});
    wait_once();
    EXPECT_EQ(asked, (std::vector<std::uint64_t>{5, 5}));
    EXPECT_EQ(tokens->all(), Tokens{7});
    // It hears what the new relay sends.
    (void)port->poll(monotonic_now(), *engine);
    port->arm();
    ASSERT_EQ(::send(third.relay.get(), "parcel", 6, 0), 6);
    EXPECT_TRUE(port->wait(monotonic_now() + seconds(20)));
}

TEST_F(GuestPortTest, CountsPacketsThatItCouldNotSend) {
    open([](FormerSeat) -> Result<PortEntry> { return Error{EAGAIN, ""}; });
    std::vector<std::byte> bytes(64);
    transport::TransmitRun run;
    run.path.source = run.path.destination = Gid::from_v4(0xc000'0201);  // None of this machine.
    run.bytes = bytes;
    run.segment_size = 64;
    run.packet_count = 1;
    EXPECT_EQ(port->unsent_packets(), 0u);
    port->transmit(std::span(&run, 1));
    EXPECT_EQ(port->unsent_packets(), 1u);
}

TEST_F(GuestPortTest, ForgetsItsTokenAtItsEnd) {
    open([](FormerSeat) -> Result<PortEntry> { return Error{EAGAIN, ""}; });
    EXPECT_EQ(tokens->all(), Tokens{5});
    engine.reset();
    port.reset();
    EXPECT_EQ(tokens->all(), Tokens{});
}

// With a relay of this process, whose user the guest is not.
class ReseatedGuest : public GuestPortTest {
protected:
    void SetUp() override {
        Result<PortEntry> entry =
            enter_port(test_port(), capture_identity(Sharing::Default), {}, seconds(1));
        ASSERT_TRUE(entry.has_value() && entry->group);
        group = std::move(entry->group);
        group->share_with_others(random, [] {});
    }
    Result<PortEntry> ask(FormerSeat before) {
        Pair pair;
        group->admit_guest(std::move(pair.relay), ::geteuid() + 1);
        Result<RelaySeat> seat =
            RelaySeat::ask_over(std::move(pair.guest), ::geteuid(), before, seconds(20));
        if (!seat) return seat.error();
        return PortEntry{nullptr, std::move(*seat)};
    }
    SlotTable::Seat seat() const { return group->table().seat(kSlot); }
    template <class Condition>
    static bool await(const Condition& met) {
        const Instant give_up = monotonic_now() + seconds(20);
        while (!met() && monotonic_now() < give_up) std::this_thread::yield();
        return met();
    }

    std::shared_ptr<PortGroup> group;
};

// It has nothing to send, and ends later.
TEST_F(ReseatedGuest, LeavesItsSlotWhenItEnds) {
    open([this](FormerSeat before) { return ask(before); });
    lose_relay();
    wait_once();
    ASSERT_EQ(seat().guest, SlotTable::Guest::Seated);
    engine.reset();
    port.reset();
    EXPECT_TRUE(await([this] { return seat().guest != SlotTable::Guest::Seated; }));
    EXPECT_EQ(seat().guest, SlotTable::Guest::Left);
}

TEST_F(ReseatedGuest, IsKnownByItsFormerTokenUntilItSaysAWord) {
    const Result<PortEntry> entry = ask({kSlot, 5});
    ASSERT_TRUE(entry.has_value());
    ASSERT_EQ(entry->seat->slot, kSlot);
    EXPECT_EQ(seat().token, entry->seat->token);
    EXPECT_EQ(seat().former_token, 5u);
    entry->seat->say_something();
    EXPECT_TRUE(await([this] { return seat().former_token == 0; }));
    EXPECT_EQ(seat().token, entry->seat->token);
    EXPECT_EQ(seat().guest, SlotTable::Guest::Seated);
}

}  // namespace
}  // namespace feroce::port::guest_port_test
