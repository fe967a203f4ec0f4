// Two ports of one group in this process: real sockets on loopback, on a port number of the test's
// own, and rings between them.
#include "port/udp_port.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "port/clock.hpp"
#include "port/port_entry.hpp"
#include "transport/packet_builder.hpp"

namespace feroce::port::udp_port_test {
namespace {

using namespace std::chrono_literals;
using transport::Counter;

const Gid kLoopback = Gid::from_v4(0x7f000001);

class NoEvents final : public device::EventListener {
public:
    void on_qp_event(transport::QueuePair&, transport::AsyncEventType) override {}
    void on_srq_event(transport::ReceiveQueue&, transport::AsyncEventType) override {}
};

// A port with an engine that has no queue pairs: it counts what it gets.
class Member {
public:
    Member(std::shared_ptr<PortGroup> group, std::uint16_t number, bool rings) {
        const Result<SlotNumber> slot = group->claim();
        Result<std::shared_ptr<Network>> network = Network::enter();
        if (!slot || !network) return;
        Result<std::unique_ptr<host::HostPort>> opened =
            UdpPort::open(GroupMembership(std::move(group), *slot),
                          {*network, random_, number, {}, "lo", rings, budget_});
        if (!opened) return;
        port = std::move(*opened);
        device::Engine::Config config;
        config.slot = port->slot();
        engine = std::make_unique<device::Engine>(
            config, device::Engine::Parts{memory_, xrc_, *port, events_, random_});
    }

    void send(const Member& to, std::uint32_t payload = 16) {
        transport::PacketSpec spec;
        spec.opcode = wire::Opcode::UcSendOnly;
        spec.destination = qpn_of(to.port->slot(), 0x77);
        spec.payload_size = payload;
        const ByteSpan bytes =
            transport::append_packet(batch_for(*port), {kLoopback, kLoopback, 0, 64, 0}, spec);
        std::fill(bytes.begin(), bytes.end(), std::byte{7});
        batch_->flush();
    }
    // All that has arrived.
    void poll() {
        for (int i = 0; i < 100 && port->poll_all(monotonic_now(), *engine); ++i) continue;
    }
    std::uint64_t received() const { return engine->counters()[Counter::ReceivedPackets]; }
    std::uint64_t by_ring() const { return engine->counters()[Counter::RingReceivedPackets]; }
    std::uint64_t sent_by_ring() const { return port->ring_counts().sent; }

    std::unique_ptr<host::HostPort> port;
    std::unique_ptr<device::Engine> engine;

private:
    transport::TransmitBatch& batch_for(transport::RunSink& sink) {
        if (!batch_) batch_ = std::make_unique<transport::TransmitBatch>(sink, 65536);
        return *batch_;
    }

    static inline RingBudget budget_{RingBudget::kDefault};  // Outlives the ports.
    static inline std::uint64_t seed_ = 7;                   // Each draws other numbers.
    Prng random_{seed_++};
    NoEvents events_;
    mem::Memory memory_{mem::Limits{}, random_};
    device::XrcDomains xrc_;
    std::unique_ptr<transport::TransmitBatch> batch_;
};

class UdpPortTest : public testing::Test {
protected:
    void SetUp() override {
        Result<PortEntry> entry = enter_port(number, capture_identity(Sharing::Default), {}, 500ms);
        ASSERT_TRUE(entry.has_value()) << entry.error().why;
        group = std::move(entry->group);
    }
    std::unique_ptr<Member> member(bool rings = true) {
        auto made = std::make_unique<Member>(group, number, rings);
        EXPECT_NE(made->engine, nullptr);
        return made;
    }
    // Packets and what follows them, until a ring takes them; how many were sent.
    static std::uint64_t send_until_ring(Member& from, Member& to, std::uint64_t limit = 5000) {
        std::uint64_t sent = 0;
        const std::uint64_t before = from.sent_by_ring();
        while (sent < limit && from.sent_by_ring() == before) {
            from.send(to);
            ++sent;
            to.poll();
            from.poll();
        }
        return sent;
    }

    const std::uint16_t number = static_cast<std::uint16_t>(20000 + ::getpid() % 20000);
    std::shared_ptr<PortGroup> group;
};

TEST_F(UdpPortTest, FirstPacketsGoByUdpAndTheRestByTheRing) {
    const auto a = member(), b = member();
    const std::uint64_t sent = send_until_ring(*a, *b);
    ASSERT_EQ(a->sent_by_ring(), 1U);
    EXPECT_GT(sent, 1U);
    b->poll();
    EXPECT_EQ(b->received(), sent);
    EXPECT_EQ(b->by_ring(), 1U);
    for (int i = 0; i < 5000; ++i) {
        a->send(*b, static_cast<std::uint32_t>(i % 4096));
        if (i % 8 == 0) b->poll();
    }
    b->poll();
    EXPECT_EQ(b->received(), sent + 5000);
    EXPECT_EQ(b->by_ring(), 5001U);
    EXPECT_EQ(a->port->ring_counts().overflowed, 0U);
}

TEST_F(UdpPortTest, APortSendsToItselfByARing) {
    const auto a = member();
    const std::uint64_t sent = send_until_ring(*a, *a);
    a->poll();
    EXPECT_EQ(a->sent_by_ring(), 1U);
    EXPECT_EQ(a->received(), sent);
}

TEST_F(UdpPortTest, NothingGoesByARingIfOneOfTheTwoDoesNotWantIt) {
    const auto with = member(), without = member(false);
    EXPECT_EQ(send_until_ring(*with, *without, 600), 600U);
    EXPECT_EQ(send_until_ring(*without, *with, 600), 600U);
    EXPECT_EQ(with->received(), 600U);
    EXPECT_EQ(without->received(), 600U);
    EXPECT_FALSE(with->port->goes_by_ring({kLoopback, kLoopback, 0, 64, 0}, without->port->slot()));
}

// One look after the other finds one: they are not single packets of an exchange.
TEST_F(UdpPortTest, SmallPacketsThatHaveQueuedUpAreTakenManyAtATime) {
    const auto from = member(false), to = member(false);
    for (int i = 0; i < 64; ++i) from->send(*to);
    int looks = 0;
    while (to->received() < 64 && looks < 1000) {
        (void)to->port->poll(monotonic_now(), *to->engine);
        ++looks;
    }
    EXPECT_EQ(to->received(), 64U);
    EXPECT_LE(looks, 20);
}

TEST_F(UdpPortTest, WhatFindsARingFullGoesByUdp) {
    const auto a = member(), b = member();
    send_until_ring(*a, *b);
    b->poll();
    const std::uint64_t before = b->received();
    for (int i = 0; i < 2100; ++i) a->send(*b);
    const device::RingCounts counts = a->port->ring_counts();
    EXPECT_EQ(counts.sent + counts.overflowed, 2101U);
    EXPECT_GT(counts.overflowed, 0U);
    b->poll();
    EXPECT_EQ(b->received() - before, 2100U);
    // Senders with a window of fixed size must not rely on it for a while.
    const transport::Path path{kLoopback, kLoopback, 0, 64, 0};
    EXPECT_FALSE(a->port->goes_by_ring(path, b->port->slot()));
    const std::uint64_t changes = a->port->ring_changes();
    for (int i = 0; i < 2000; ++i) {
        a->send(*b);
        if (i % 64 == 0) b->poll();
    }
    EXPECT_EQ(a->port->ring_counts().sent, counts.sent + 2000);
    EXPECT_TRUE(a->port->goes_by_ring(path, b->port->slot()));
    EXPECT_GT(a->port->ring_changes(), changes);
}

TEST_F(UdpPortTest, AnArrivalEndsOneWaitOnly) {
    const auto a = member(), b = member();
    send_until_ring(*a, *b);
    b->poll();
    b->port->arm();
    a->send(*b);
    EXPECT_TRUE(b->port->wait(monotonic_now() + 20s));
    // It is left where it is for a moment, as to a program that may come for it.
    EXPECT_FALSE(b->port->wait(monotonic_now() + 20ms));
    b->port->arm();
    EXPECT_TRUE(b->port->wait(monotonic_now() + 20s));
}

TEST_F(UdpPortTest, TheNextOwnerOfASlotGetsNothingThatWasForTheLastOne) {
    const auto a = member();
    auto b = member();
    send_until_ring(*a, *b);
    const SlotNumber slot = b->port->slot();
    EXPECT_TRUE(a->port->goes_by_ring({kLoopback, kLoopback, 0, 64, 0}, slot));
    for (int i = 0; i < 10; ++i) a->send(*b);
    b.reset();
    const auto c = member();
    ASSERT_EQ(c->port->slot(), slot);
    c->poll();
    EXPECT_EQ(c->received(), 0U);
    const std::uint64_t changes = a->port->ring_changes();
    const std::uint64_t sent = send_until_ring(*a, *c);
    EXPECT_GT(a->port->ring_changes(), changes);
    c->poll();
    EXPECT_EQ(c->received(), sent);
    EXPECT_EQ(c->by_ring(), 1U);
}

TEST_F(UdpPortTest, WhatAMemberHasSentIsReceivedThoughItIsGone) {
    auto a = member();
    const auto b = member();
    const std::uint64_t sent = send_until_ring(*a, *b);
    for (int i = 0; i < 100; ++i) a->send(*b);
    a.reset();
    const auto c = member();  // In the slot of before.
    const std::uint64_t more = send_until_ring(*c, *b);
    b->poll();
    EXPECT_EQ(b->received(), sent + 100 + more);
}

// A reader that goes to sleep at any instant is woken for what is sent at any instant.
TEST_F(UdpPortTest, ASleeperIsWoken) {
    const auto a = member(), b = member();
    send_until_ring(*a, *b);
    b->poll();
    constexpr int kRounds = 2000;
    std::uint64_t expected = b->received();
    const std::uint64_t first = expected;
    std::atomic<int> asked{0};
    std::thread writer([&] {
        for (int i = 1; i <= kRounds; ++i) {
            while (asked.load() < i) std::this_thread::yield();
            a->send(*b);
        }
    });
    int late = 0;
    for (int i = 1; i <= kRounds; ++i) {
        ++expected;
        asked = i;
        if (i % 3 == 0) b->poll();
        while (b->received() < expected) {
            b->port->arm();
            if (!b->port->wait(monotonic_now() + 20s)) ++late;
            ASSERT_LT(late, 2) << "in round " << i;
            b->port->disarm(false);
            b->poll();
        }
    }
    writer.join();
    EXPECT_EQ(b->received(), first + kRounds);
    EXPECT_EQ(late, 0);
}

// Offers that make no sense leave everything as it was.
TEST_F(UdpPortTest, HostileOffers) {
    const auto a = member(), b = member();
    SlotTable& table = group->table();
    const auto offer = [&](int fd, std::uint64_t incarnation) {
        const RingMessage message{.kind = RingMessage::Kind::Offer,
                                  .from = a->port->slot(),
                                  .incarnation = incarnation,
                                  .ring = 1};
        ASSERT_TRUE(send_ring_message(group->parcel_sender(), table, b->port->slot(), message, fd));
        b->poll();
    };
    const std::uint64_t right = table.incarnation(a->port->slot());
    const Fd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    offer(unsealed.get(), right);
    ASSERT_EQ(::ftruncate(unsealed.get(), static_cast<off_t>(kRingSize)), 0);
    offer(unsealed.get(), right);
    offer(STDIN_FILENO, right);
    RingFile file;
    const Fd sound = file.make();
    offer(sound.get(), right + 2);
    // An acceptance that nobody asked for.
    const RingMessage answer{.kind = RingMessage::Kind::Acceptance,
                             .from = a->port->slot(),
                             .incarnation = right,
                             .ring = 5};
    ASSERT_TRUE(
        send_ring_message(group->parcel_sender(), table, b->port->slot(), answer, sound.get()));
    b->poll();
    EXPECT_EQ(b->received(), 0U);
    const std::uint64_t sent = send_until_ring(*a, *b);
    b->poll();
    EXPECT_EQ(b->received(), sent);
    EXPECT_EQ(b->by_ring(), 1U);
}

}  // namespace
}  // namespace feroce::port::udp_port_test
