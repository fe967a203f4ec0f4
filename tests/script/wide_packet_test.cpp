// Several packets of a message as one, where the peer reads our memory (packet_builder.hpp). Their
// PSNs are those of the packets they stand for, so either kind can follow the other.
#include "scripted_peer.hpp"

namespace feroce::script::wide_packet_test {
namespace {

using transport::Counter;
using wire::NakCode;

constexpr std::uint32_t kFive = 4 * kMtu + 100;  // Bytes of a message of five packets.

QpOptions by_ring() {
    QpOptions options;
    options.ring = true;
    return options;
}

ScriptedPeer::Spec of(std::size_t payload, const wire::Reth& reth = {}) {
    ScriptedPeer::Spec spec;
    spec.payload_size = payload;
    spec.packets = transport::packets_for(static_cast<std::uint32_t>(payload), kMtu);
    spec.extensions.reth = reth;
    return spec;
}

TEST(WidePacket, AMessageIsOnePacketAndUsesThePsnsOfFive) {
    ScriptedPeer peer(by_ring());
    peer.post(SendOp::Write, kFive, 1);
    peer.post(SendOp::Write, 10, 2);
    peer.run();
    const SentPacket wide = peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    EXPECT_EQ(wide.packet.payload.size(), kFive);
    EXPECT_EQ(wide.packet.reth().length, kFive);
    EXPECT_EQ(std::memcmp(wide.packet.payload.data(), peer.memory.data(), kFive), 0);
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn + 5);
    peer.peer_acks(kSendPsn + 4);
    peer.expect_completion(1, WcStatus::Success);
    peer.expect_no_completion();
    peer.peer_acks(kSendPsn + 5);
    peer.expect_completion(2, WcStatus::Success);
}

TEST(WidePacket, APacketOfTheUsualSizeIsBuiltThereToo) {
    ScriptedPeer peer(by_ring());
    peer.post(SendOp::Write, 10, 1);
    peer.post(SendOp::Write, kMtu, 2);
    peer.run();
    EXPECT_EQ(peer.port.places, 2);
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn + 1);
    peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn, of(8, peer.reth(8)));
    EXPECT_EQ(peer.port.places, 3);
    peer.expect_ack(kReceivePsn);
}

// How many of them the window of a ring lets out.
std::uint32_t count_that_fit(std::uint32_t length) {
    ScriptedPeer peer(by_ring());
    std::uint32_t posted = 0;
    while (peer.port.sent.size() == posted) {
        peer.post(SendOp::Write, length, ++posted);
        peer.run();
    }
    return posted - 1;
}

// A full window is looked at more than once: whether there is something to send, whether to wait.
TEST(WidePacket, WhatThePeerReadsBetweenTwoLooksOpensTheWindow) {
    constexpr std::uint32_t kLength = 60'000;
    const std::uint32_t fit = count_that_fit(kLength);
    for (int looks = 0; looks < 8; ++looks) {
        ScriptedPeer peer(by_ring());
        for (std::uint32_t id = 0; id < fit; ++id) peer.post(SendOp::Write, kLength, id);
        peer.run();
        ASSERT_EQ(peer.port.sent.size(), fit);
        peer.port.looks_until_read = looks;
        peer.post(SendOp::Write, kLength, fit);
        for (int turn = 0; turn < 8; ++turn) peer.run();
        EXPECT_EQ(peer.port.sent.size(), fit + 1) << looks;
    }
}

TEST(WidePacket, WhatFindsNoRoomFollowsWhatDid) {
    ScriptedPeer peer(by_ring());
    peer.port.places_max = 2;
    for (std::uint64_t id = 1; id <= 4; ++id) peer.post(SendOp::Write, 10, id);
    peer.run();
    EXPECT_EQ(peer.port.places, 2);
    for (std::uint32_t i = 0; i < 4; ++i) peer.expect_sent(Opcode::RcWriteOnly, kSendPsn + i);
    peer.expect_silence();
}

TEST(WidePacket, WithoutRoomPacketsAreThoseOfTheNetwork) {
    ScriptedPeer peer(by_ring());
    peer.port.ring_room = false;
    peer.post(SendOp::Send, 2 * kMtu, 1);
    peer.run();
    peer.expect_sent(Opcode::RcSendFirst, kSendPsn);
    peer.expect_sent(Opcode::RcSendLast, kSendPsn + 1);
    peer.expect_silence();
}

TEST(WidePacket, WhatIsMissingIsSentAgainInEitherWay) {
    ScriptedPeer peer(by_ring());
    peer.post(SendOp::Write, kFive, 1);
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    peer.peer_naks(kSendPsn + 2, NakCode::SequenceError);
    const SentPacket rest = peer.expect_sent(Opcode::RcWriteLast, kSendPsn + 2);
    EXPECT_EQ(rest.packet.payload.size(), kFive - 2 * kMtu);
    peer.port.ring_room = false;
    peer.peer_naks(kSendPsn + 3, NakCode::SequenceError);
    peer.expect_sent(Opcode::RcWriteMiddle, kSendPsn + 3);
    peer.expect_sent(Opcode::RcWriteLast, kSendPsn + 4);
    peer.peer_acks(kSendPsn + 4);
    peer.expect_completion(1, WcStatus::Success);
}

TEST(WidePacket, AProbeIsOnePacket) {
    ScriptedPeer peer(by_ring());
    peer.post(SendOp::Write, 10, 1);
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    peer.now += std::chrono::microseconds(10);
    peer.peer_acks(kSendPsn);  // The round trip is known now.
    peer.post(SendOp::Write, kFive, 2);
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn + 1);
    peer.after(std::chrono::milliseconds(21));
    const SentPacket probe = peer.expect_sent(Opcode::RcWriteFirst, kSendPsn + 1);
    EXPECT_EQ(probe.packet.payload.size(), kMtu);
    peer.expect_silence();
}

TEST(WidePacket, WhatCannotBeReadIsTakenBack) {
    ScriptedPeer peer(by_ring());
    SendWr wr = peer.send_wr(SendOp::Write, kFive, 1);
    mem::Sge bad = wr.sges[0];
    bad.lkey.raw ^= 0x100;
    wr.sges = {&bad, 1};
    ASSERT_TRUE(peer.engine.post_send(peer.now, *peer.qp, wr));
    peer.run();
    peer.expect_silence();
    peer.expect_completion(1, WcStatus::LocalProtectionError);
}

TEST(WidePacket, ARequestIsExecutedAndAcknowledgedToItsEnd) {
    ScriptedPeer peer;
    peer.peer_sends_by_ring = true;
    peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn, of(kFive, peer.reth(kFive)));
    peer.expect_ack(kReceivePsn + 4);
    EXPECT_EQ(peer.memory[kFive - 1], std::byte{0x5a});
    EXPECT_NE(peer.memory[kFive], std::byte{0x5a});
    // And in two, the second of the usual size.
    peer.peer_sends(Opcode::RcWriteFirst, kReceivePsn + 5, of(3 * kMtu, peer.reth(3 * kMtu + 1)));
    peer.expect_ack(kReceivePsn + 7);
    peer.peer_sends(Opcode::RcWriteLast, kReceivePsn + 8, of(1));
    peer.expect_ack(kReceivePsn + 8);
}

TEST(WidePacket, ByTheNetworkItIsRefused) {
    ScriptedPeer peer;
    ScriptedPeer::Spec spec = of(kFive, peer.reth(kFive));
    spec.packets = 1;
    peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn, spec);
    peer.expect_nak(kReceivePsn, NakCode::InvalidRequest);
    EXPECT_NE(peer.memory[1], std::byte{0x5a});
}

// Else packets that follow would be taken for duplicates, and be acknowledged.
TEST(WidePacket, APeerWithAnotherPathMtuIsRefused) {
    for (const std::uint32_t packets : {1U, 2U, 8U}) {
        ScriptedPeer peer;
        peer.peer_sends_by_ring = true;
        ScriptedPeer::Spec spec = of(4 * kMtu, peer.reth(4 * kMtu));
        spec.packets = packets;
        peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn, spec);
        peer.expect_nak(kReceivePsn, NakCode::InvalidRequest);
        EXPECT_NE(peer.memory[1], std::byte{0x5a});
        EXPECT_EQ(peer.qp->state(), QpState::Err);
    }
}

TEST(WidePacket, AnAnswerOfAnotherPathMtuIsRefused) {
    ScriptedPeer peer(by_ring());
    peer.peer_sends_by_ring = true;
    peer.post(SendOp::Read, 4 * kMtu, 1);
    peer.run();
    peer.expect_sent(Opcode::RcReadRequest, kSendPsn);
    ScriptedPeer::Spec spec = of(4 * kMtu);
    spec.packets = 1;
    peer.peer_sends(Opcode::RcReadResponseOnly, kSendPsn, spec);
    peer.expect_completion(1, WcStatus::BadResponseError);
}

TEST(WidePacket, AllButTheLastAreFull) {
    ScriptedPeer peer;
    peer.peer_sends_by_ring = true;
    peer.peer_sends(Opcode::RcWriteFirst, kReceivePsn, of(3 * kMtu - 4, peer.reth(kFive)));
    peer.expect_nak(kReceivePsn, NakCode::InvalidRequest);
}

TEST(WidePacket, OneThatReachesFurtherThanADuplicateIsAcknowledgedAsOne) {
    ScriptedPeer peer;
    peer.peer_sends_by_ring = true;
    const wire::Reth reth = peer.reth(kFive);
    peer.peer_sends(Opcode::RcWriteFirst, kReceivePsn, of(2 * kMtu, reth));
    peer.expect_ack(kReceivePsn + 1);
    peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn, of(kFive, reth));
    peer.expect_ack(kReceivePsn + 1);
    peer.peer_sends(Opcode::RcWriteLast, kReceivePsn + 2, of(kFive - 2 * kMtu));
    peer.expect_ack(kReceivePsn + 4);
    // All of it is known: a duplicate as any other.
    peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn, of(kFive, reth));
    peer.expect_ack(kReceivePsn + 4);
}

TEST(WidePacket, AReadIsAnsweredByOne) {
    ScriptedPeer peer(by_ring());
    ScriptedPeer::Spec ask;
    ask.extensions.reth = peer.reth(kFive);
    peer.peer_sends(Opcode::RcReadRequest, kReceivePsn, ask);
    const SentPacket answer = peer.expect_sent(Opcode::RcReadResponseOnly, kReceivePsn);
    EXPECT_EQ(answer.packet.payload.size(), kFive);
    EXPECT_EQ(std::memcmp(answer.packet.payload.data(), peer.memory.data(), kFive), 0);
    ask.extensions.reth = peer.reth(8);
    peer.peer_sends(Opcode::RcReadRequest, kReceivePsn + 5, ask);
    peer.expect_sent(Opcode::RcReadResponseOnly, kReceivePsn + 5);
}

TEST(WidePacket, AnAnswerFillsTheWholeRead) {
    ScriptedPeer peer(by_ring());
    peer.peer_sends_by_ring = true;
    peer.post(SendOp::Read, kFive, 1);
    peer.run();
    peer.expect_sent(Opcode::RcReadRequest, kSendPsn);
    peer.peer_sends(Opcode::RcReadResponseFirst, kSendPsn, of(3 * kMtu));
    peer.expect_no_completion();
    peer.peer_sends(Opcode::RcReadResponseLast, kSendPsn + 3, of(kFive - 3 * kMtu));
    peer.expect_completion(1, WcStatus::Success);
    EXPECT_EQ(peer.memory[kFive - 1], std::byte{0x5a});
}

TEST(WidePacket, AnAnswerThatIsLongerThanWhatWasAskedForFillsNothing) {
    ScriptedPeer peer(by_ring());
    peer.peer_sends_by_ring = true;
    peer.post(SendOp::Read, 2 * kMtu, 1);
    peer.run();
    peer.expect_sent(Opcode::RcReadRequest, kSendPsn);
    peer.peer_sends(Opcode::RcReadResponseOnly, kSendPsn, of(3 * kMtu));
    EXPECT_NE(peer.memory[0], std::byte{0x5a});
    peer.expect_no_completion();  // Dropped: it names packets that were never sent.
    peer.peer_sends(Opcode::RcReadResponseOnly, kSendPsn, of(kMtu + 4));
    peer.expect_completion(1, WcStatus::BadResponseError);
}

// As that of a peer with a smaller path MTU does. Else what follows the READ would be acknowledged.
TEST(WidePacket, AnAnswerThatStandsForMoreThanItHoldsIsRefused) {
    for (const SendOp op : {SendOp::Read, SendOp::Flush}) {
        ScriptedPeer peer(by_ring());
        peer.peer_sends_by_ring = true;
        const std::uint32_t length = op == SendOp::Read ? kMtu : 0;
        peer.post(op, length, 1);
        peer.post(SendOp::Read, 8, 2);
        ScriptedPeer::Spec spec = of(length);
        spec.packets = 2;
        peer.peer_sends(Opcode::RcReadResponseOnly, kSendPsn, spec);
        peer.expect_completion(1, WcStatus::BadResponseError);
        peer.expect_completion(2, WcStatus::FlushError);
    }
}

}  // namespace
}  // namespace feroce::script::wide_packet_test
