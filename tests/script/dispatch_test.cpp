// What becomes of a datagram before a queue pair's machine sees it: what is no packet, what is for
// nobody, and what the network says about itself.
#include "scripted_peer.hpp"

namespace feroce::script::dispatch_test {
namespace {

using namespace std::chrono_literals;
using transport::Counter;
using transport::DropReason;
using transport::Notice;
using transport::NoticeKind;

constexpr std::uint8_t kCongestionExperienced = 3;
constexpr Gid kGroup = Gid::from_v4(0xe000'0042);

std::vector<std::byte> packet(Opcode opcode, Qpn to, Psn psn, std::size_t payload = 8) {
    std::vector<std::byte> bytes(wire::packet_size(opcode, payload));
    wire::Bth bth;
    bth.opcode = opcode;
    bth.destination = to;
    bth.psn = psn;
    bth.ack_request = true;
    wire::emit_headers(bytes, bth, {});
    return bytes;
}

const Notice* find_notice(const ScriptedPeer& peer, Qpn qpn, NoticeKind kind) {
    for (const Notice& notice : peer.engine.reasons().notices.all())
        if (notice.kind == kind && notice.qpn == qpn) return &notice;
    return nullptr;
}

class Dispatch : public ::testing::Test {
protected:
    void receive(ByteView bytes, std::uint8_t traffic_class = 0, const Gid& to = kOurs) {
        peer.engine.receive(peer.now, {bytes, kPeers, to, kPeerPort, 0, traffic_class, 64});
        peer.run();
    }
    std::uint64_t drops(DropReason reason) const { return peer.engine.counters()[reason]; }
    QueuePair& make_qp(QpType type) {
        transport::QpInit init;
        init.type = type;
        init.pd = peer.pd;
        init.send_cq = init.receive_cq = &peer.cq;
        init.datagram_mtu = kMtu;
        return **peer.engine.create_qp(init);
    }

    ScriptedPeer peer;
};

TEST_F(Dispatch, WhatIsNoPacketIsCountedByWhatIsWrong) {
    const Qpn to = peer.qp->qpn();
    const std::vector<std::byte> good = packet(Opcode::RcSendOnly, to, kReceivePsn);
    receive(ByteView(good).first(wire::Bth::kSize + 3));
    EXPECT_EQ(drops(DropReason::TooShort), 1U);
    // Long enough for a SEND, but not for the RETH that a WRITE has.
    std::vector<std::byte> bytes = packet(Opcode::RcSendOnly, to, kReceivePsn);
    bytes[0] = static_cast<std::byte>(Opcode::RcWriteOnly);
    receive(bytes);
    EXPECT_EQ(drops(DropReason::TooShort), 2U);
    bytes[0] = std::byte{0x15};  // Reserved.
    receive(bytes);
    EXPECT_EQ(drops(DropReason::UnknownOpcode), 1U);
    bytes = good;
    bytes[1] |= std::byte{1};
    receive(bytes);
    EXPECT_EQ(drops(DropReason::BadVersion), 1U);
    bytes = packet(Opcode::RcSendOnly, to, kReceivePsn, 0);
    bytes[1] |= std::byte{0x30};  // Three bytes of pad, and nothing to pad.
    receive(bytes);
    EXPECT_EQ(drops(DropReason::BadPad), 1U);
    receive(ByteView(good).first(good.size() - 1));
    EXPECT_EQ(drops(DropReason::BadLength), 1U);
    peer.expect_silence();
    EXPECT_EQ(peer.engine.counters()[Counter::ReceivedPackets], 6U);
}

TEST_F(Dispatch, ALimitedMemberOfThePartitionIsHeard) {
    peer.post_receive(64, 1);
    std::vector<std::byte> bytes = packet(Opcode::RcSendOnly, peer.qp->qpn(), kReceivePsn);
    bytes[2] &= std::byte{0x7f};
    receive(bytes);
    peer.expect_completion(1, WcStatus::Success);
}

// A request is noticed, so that somebody can be told why it gets no answer. An answer is not:
// nobody waits for what became of it.
TEST_F(Dispatch, OnlyRequestsToNobodyAreNoticed) {
    const Qpn nobody{peer.qp->qpn().raw ^ 1};
    for (const Opcode answer :
         {Opcode::RcAck, Opcode::RcAtomicAck, Opcode::RcReadResponseOnly, Opcode::Cnp})
        receive(packet(answer, nobody, kReceivePsn, 0));
    EXPECT_EQ(drops(DropReason::NoSuchQp), 4U);
    EXPECT_EQ(find_notice(peer, nobody, NoticeKind::NoSuchQp), nullptr);
    receive(packet(Opcode::RcSendOnly, nobody, kReceivePsn));
    EXPECT_EQ(drops(DropReason::NoSuchQp), 5U);
    const Notice* notice = find_notice(peer, nobody, NoticeKind::NoSuchQp);
    ASSERT_NE(notice, nullptr);
    EXPECT_EQ(notice->source, kPeers);
    EXPECT_EQ(notice->psn, kReceivePsn);
}

// Of a queue pair that was destroyed, late requests are told apart from those to one that never
// was.
TEST_F(Dispatch, RequestsToADestroyedQueuePairAreNoticedAsSuch) {
    QueuePair& qp = make_qp(QpType::Rc);
    const Qpn gone = qp.qpn();
    peer.engine.destroy_qp(qp);
    receive(packet(Opcode::RcSendOnly, gone, kReceivePsn));
    EXPECT_EQ(drops(DropReason::NoSuchQp), 1U);
    EXPECT_EQ(find_notice(peer, gone, NoticeKind::NoSuchQp), nullptr);
    EXPECT_NE(find_notice(peer, gone, NoticeKind::DestroyedQp), nullptr);
}

TEST_F(Dispatch, AQueuePairThatWasNotBroughtUpTakesNothing) {
    QueuePair& qp = make_qp(QpType::Rc);
    receive(packet(Opcode::RcSendOnly, qp.qpn(), kReceivePsn));
    EXPECT_EQ(drops(DropReason::WrongQpState), 1U);
    const Notice* notice = find_notice(peer, qp.qpn(), NoticeKind::WrongState);
    ASSERT_NE(notice, nullptr);
    EXPECT_EQ(notice->state, QpState::Reset);
    peer.expect_silence();
}

TEST_F(Dispatch, AMulticastDatagramGoesToTheMembersOfItsGroup) {
    const auto datagram = packet(Opcode::UdSendOnly, kMulticastQpn, kReceivePsn);
    receive(datagram, 0, kGroup);
    EXPECT_EQ(drops(DropReason::MulticastNoGroup), 1U);
    QueuePair& member = make_qp(QpType::Ud);
    ASSERT_TRUE(peer.engine.attach_multicast(member, kGroup));
    receive(packet(Opcode::RcSendOnly, kMulticastQpn, kReceivePsn), 0, kGroup);
    EXPECT_EQ(drops(DropReason::MulticastNoGroup), 2U);
    receive(datagram, 0, kOurs);  // Another group's, if any.
    EXPECT_EQ(drops(DropReason::MulticastNoGroup), 3U);
    receive(datagram, 0, kGroup);
    EXPECT_EQ(drops(DropReason::MulticastNoGroup), 3U);
    EXPECT_EQ(drops(DropReason::WrongQpState), 1U);  // It came to the member, who is not up.
    ASSERT_TRUE(peer.engine.detach_multicast(member, kGroup));
    receive(datagram, 0, kGroup);
    EXPECT_EQ(drops(DropReason::MulticastNoGroup), 4U);
}

TEST_F(Dispatch, OnlyADatagramQueuePairJoinsAndOnlyAGroup) {
    EXPECT_EQ(peer.engine.attach_multicast(*peer.qp, kGroup).error().code, EINVAL);
    QueuePair& member = make_qp(QpType::Ud);
    EXPECT_EQ(peer.engine.attach_multicast(member, kOurs).error().code, EINVAL);
    EXPECT_FALSE(peer.engine.detach_multicast(member, kGroup));
}

// It must not be taken for a member: nothing of the group would ever come.
TEST_F(Dispatch, AGroupThatTheNetworkRefusesHasNoMember) {
    QueuePair& member = make_qp(QpType::Ud);
    peer.port.joins_groups = false;
    EXPECT_EQ(peer.engine.attach_multicast(member, kGroup).error().code, EADDRNOTAVAIL);
    receive(packet(Opcode::UdSendOnly, kMulticastQpn, kReceivePsn), 0, kGroup);
    EXPECT_EQ(drops(DropReason::MulticastNoGroup), 1U);
    peer.port.joins_groups = true;
    EXPECT_TRUE(peer.engine.attach_multicast(member, kGroup));
    EXPECT_TRUE(peer.engine.attach_multicast(member, kGroup)) << "twice is once";
}

TEST_F(Dispatch, AMarkedPacketIsToldToItsSenderNotTooOften) {
    peer.post_receive(64, 1);
    const Qpn to = peer.qp->qpn();
    receive(packet(Opcode::RcSendOnly, to, kReceivePsn), kCongestionExperienced);
    const SentPacket notice = peer.expect_sent(Opcode::Cnp, Psn{});
    EXPECT_EQ(notice.packet.payload.size(), 16U);
    peer.expect_ack(kReceivePsn);
    const auto repeat = packet(Opcode::RcSendOnly, to, kReceivePsn);
    peer.now += 49us;
    receive(repeat, kCongestionExperienced);
    peer.expect_ack(kReceivePsn);
    peer.now += 1us;
    receive(repeat, kCongestionExperienced);
    peer.expect_sent(Opcode::Cnp, Psn{});
    peer.expect_ack(kReceivePsn);
    peer.now += 1s;
    receive(repeat, /*traffic_class=*/1);  // Could be marked, and is not.
    peer.expect_ack(kReceivePsn);
    peer.expect_silence();
}

TEST_F(Dispatch, ANotificationOfCongestionMakesTheWindowSmaller) {
    const std::uint32_t before = peer.qp->window()->size();
    receive(packet(Opcode::Cnp, peer.qp->qpn(), Psn{}, 16));
    EXPECT_EQ(peer.engine.counters()[Counter::CongestionNotifications], 1U);
    EXPECT_LT(peer.qp->window()->size(), before);
    peer.expect_silence();
}

TEST_F(Dispatch, AQueuePairWithoutAWindowOnlyCountsIt) {
    ScriptedPeer unreliable({.type = QpType::Uc});
    const auto bytes = packet(Opcode::Cnp, unreliable.qp->qpn(), Psn{}, 16);
    unreliable.engine.receive(unreliable.now, {bytes, kPeers, kOurs, kPeerPort, 0, 0, 64});
    EXPECT_EQ(unreliable.engine.counters()[Counter::CongestionNotifications], 1U);
}

}  // namespace
}  // namespace feroce::script::dispatch_test
