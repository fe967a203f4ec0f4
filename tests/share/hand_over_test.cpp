// Packets for several slots that the kernel left merged, as a NIC may do: the whole lands in the
// socket of the first one's slot, and each packet still reaches the owner of its own.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "attacks.hpp"
#include "port/real_host.hpp"
#include "port/udp_sender.hpp"
#include "ring.hpp"
#include "wire/bth.hpp"
#include "wire/cm_messages.hpp"
#include "wire/cm_path_messages.hpp"
#include "wire/headers.hpp"

namespace feroce::share {
namespace {

using std::chrono::seconds;

class Listener final : public device::EventListener {
    void on_qp_event(transport::QueuePair&, transport::AsyncEventType) override {}
    void on_srq_event(transport::ReceiveQueue&, transport::AsyncEventType) override {}
};

// A slot with an engine that has no queue pairs: every packet it gets is counted and dropped.
class Receiver {
public:
    explicit Receiver(port::RealHost& host) : host_(host), port_(std::move(*host.open_port())) {
        device::Engine::Config config;
        config.slot = port_->slot();
        engine_ = std::make_unique<device::Engine>(
            config, device::Engine::Parts{memory_, xrc_, *port_, listener_, host_.random()});
        port_->arm();
    }
    SlotNumber slot() const { return port_->slot(); }
    // Receives until so many packets have come; false if they do not.
    bool gets(std::uint64_t packets) {
        return await(seconds(10), [&] {
            port_->wait(host_.now() + std::chrono::milliseconds(1));
            while (port_->poll(host_.now(), *engine_)) continue;
            port_->arm();
            return engine_->counters()[transport::Counter::ReceivedPackets] >= packets;
        });
    }
    std::uint64_t count(transport::Counter c) const { return engine_->counters()[c]; }
    std::uint64_t count(transport::DropReason r) const { return engine_->counters()[r]; }

private:
    port::RealHost& host_;
    std::unique_ptr<host::HostPort> port_;
    Prng random_{1};
    mem::Memory memory_{mem::Limits{}, random_};
    device::XrcDomains xrc_;
    Listener listener_;
    std::unique_ptr<device::Engine> engine_;
};

port::RealHost::Options loopback_only() {
    port::RealHost::Options options;
    options.devices = "lo";
    return options;
}

enum class To : std::uint8_t { AQueuePair, TheConnectionManager };

// One segmented send, with a packet to each of the slots.
void send_merged(const std::array<SlotNumber, 2>& slots, To to = To::AQueuePair) {
    constexpr std::size_t kHeaders = wire::Bth::kSize + wire::Deth::kSize;
    constexpr std::uint32_t kSize = kHeaders + wire::kMadSize + 4;
    std::vector<std::byte> bytes(slots.size() * kSize);
    for (std::size_t i = 0; i < slots.size(); ++i) {
        const ByteSpan packet = ByteSpan(bytes).subspan(i * kSize, kSize);
        wire::Bth bth;
        bth.opcode = wire::Opcode::UdSendOnly;
        bth.destination =
            to == To::TheConnectionManager ? kGeneralServicesQpn : qpn_of(slots[i], 0x1234);
        bth.emit(packet.first<wire::Bth::kSize>());
        const wire::CommId theirs{std::uint32_t{slots[i]} << kCommIdLowBits};
        const wire::MadBytes mad = wire::make_cm_mad(1, wire::CmDreq{.remote_id = theirs});
        std::copy(mad.begin(), mad.end(), packet.begin() + kHeaders);
    }
    transport::TransmitRun run;
    run.path.source = run.path.destination = loopback_v4(1);
    run.bytes = bytes;
    run.segment_size = kSize;
    run.packet_count = slots.size();
    Prng random(3);
    const port::LocalAddresses addresses;
    port::UdpSender sender(*port::Network::enter(), addresses, random, kPort);
    sender.transmit(std::span(&run, 1));
    EXPECT_EQ(sender.dropped_packets(), 0u);
}

class HandOver : public testing::Test {
protected:
    void SetUp() override { enter_private_network(); }
};

TEST_F(HandOver, GoesFromOneMemberToAnother) {
    port::RealHost host(loopback_only());
    Receiver first(host), second(host);
    send_merged({first.slot(), second.slot()});
    ASSERT_TRUE(first.gets(2));
    EXPECT_EQ(first.count(transport::Counter::HandedOver), 1u);
    EXPECT_EQ(first.count(transport::DropReason::NoSuchQp), 1u);
    ASSERT_TRUE(second.gets(1));
    EXPECT_EQ(second.count(transport::DropReason::NoSuchQp), 1u);
    EXPECT_EQ(second.count(transport::Counter::HandedOver), 0u);
}

TEST_F(HandOver, TheConnectionManagersMessagesGoByTheirIds) {
    port::RealHost host(loopback_only());
    Receiver first(host), second(host);
    send_merged({first.slot(), second.slot()}, To::TheConnectionManager);
    ASSERT_TRUE(first.gets(2));
    EXPECT_EQ(first.count(transport::Counter::HandedOver), 1u);
    ASSERT_TRUE(second.gets(1));
    EXPECT_EQ(second.count(transport::Counter::HandedOver), 0u);
}

TEST_F(HandOver, APacketForASlotThatNobodyHasIsDropped) {
    port::RealHost host(loopback_only());
    Receiver only(host);
    send_merged({only.slot(), port::kSlots - 1});
    ASSERT_TRUE(only.gets(2));
    EXPECT_EQ(only.count(transport::DropReason::NoSuchQp), 2u);
    EXPECT_EQ(only.count(transport::Counter::HandedOver), 0u);
}

// Both ways between a member and a guest: what lands in the guest's socket is sorted by the relay.
TEST_F(HandOver, AGuestGetsItsOwnAndNoMore) {
    int to_parent[2], to_child[2];
    ASSERT_EQ(::pipe(to_parent), 0);
    ASSERT_EQ(::pipe(to_child), 0);
    port::RealHost host(loopback_only());
    Receiver member(host);
    const pid_t child = ::fork();
    if (child == 0) {
        char byte;
        // The parent's thread serves us from here on; the fork inherited no thread of it.
        if (!become_ordinary_user()) ::_exit(1);
        host.abandon();
        port::RealHost own(loopback_only());
        Receiver guest(own);
        const SlotNumber slot = guest.slot();
        (void)!::write(to_parent[1], &slot, sizeof slot);
        (void)!::read(to_child[0], &byte, 1);
        ::_exit(guest.gets(2) && guest.count(transport::DropReason::NoSuchQp) == 2 ? 0 : 2);
    }
    SlotNumber slot = 0;
    ::fcntl(to_parent[0], F_SETFL, O_NONBLOCK);
    ASSERT_TRUE(await(seconds(10), [&] {
        member.gets(0);  // Lets the newcomer in.
        return ::read(to_parent[0], &slot, sizeof slot) == sizeof slot;
    }));
    EXPECT_TRUE(port::is_guest_slot(slot));
    send_merged({slot, member.slot()});
    EXPECT_TRUE(member.gets(1));
    send_merged({member.slot(), slot});
    EXPECT_TRUE(member.gets(3));
    EXPECT_EQ(member.count(transport::Counter::HandedOver), 1u);
    EXPECT_EQ(member.count(transport::DropReason::NoSuchQp), 2u);
    EXPECT_EQ(::write(to_child[1], "x", 1), 1);
    EXPECT_EQ(exit_status(child), 0);
    for (const int fd : {to_parent[0], to_parent[1], to_child[0], to_child[1]}) ::close(fd);
}

}  // namespace
}  // namespace feroce::share
