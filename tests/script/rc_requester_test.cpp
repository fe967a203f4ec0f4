// The sending half of RC, packet by packet.
#include "scripted_peer.hpp"

namespace feroce::script {
namespace {

using namespace std::chrono_literals;
using transport::Counter;
using wire::NakCode;

constexpr Duration kAckTimeout = Duration(std::int64_t{4096} << 14);
constexpr Duration kLaterAckTimeout = kAckTimeout * 5 / 4;  // From the second one on, at most.

Psn sent(std::uint32_t n) {
    return kSendPsn + n;
}

TEST(RcRequester, CutsAWriteByThePathMtu) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 2 * kMtu + 3, 1);
    const SentPacket first = peer.expect_sent(Opcode::RcWriteFirst, sent(0));
    EXPECT_EQ(first.packet.reth(), (wire::Reth{0x10000, RKey{77}, 2 * kMtu + 3}));
    EXPECT_EQ(first.packet.payload.size(), kMtu);
    EXPECT_FALSE(first.packet.bth.ack_request);
    peer.expect_sent(Opcode::RcWriteMiddle, sent(1));
    const SentPacket last = peer.expect_sent(Opcode::RcWriteLast, sent(2));
    EXPECT_TRUE(last.packet.bth.ack_request);
    EXPECT_EQ(last.packet.payload.size(), 3U);
    EXPECT_EQ(last.packet.bth.pad_count, 1U);
    EXPECT_EQ(last.packet.payload[2], peer.memory[2 * kMtu + 2]);
    peer.expect_silence();
    peer.expect_no_completion();
    peer.peer_acks(sent(2));
    peer.expect_completion(1, WcStatus::Success);
}

TEST(RcRequester, EveryOperationHasItsOpcode) {
    ScriptedPeer peer;
    const std::pair<SendOp, Opcode> table[] = {
        {SendOp::Send, Opcode::RcSendOnly},
        {SendOp::SendImmediate, Opcode::RcSendOnlyImmediate},
        {SendOp::SendInvalidate, Opcode::RcSendOnlyInvalidate},
        {SendOp::Write, Opcode::RcWriteOnly},
        {SendOp::WriteImmediate, Opcode::RcWriteOnlyImmediate}};
    std::uint32_t n = 0;
    for (const auto& [op, opcode] : table) {
        peer.post(op, 8, n);
        peer.expect_sent(opcode, sent(n));
        peer.peer_acks(sent(n));
        peer.expect_completion(n, WcStatus::Success);
        ++n;
    }
}

TEST(RcRequester, TheLastPacketOfAMessageHasItsOpcode) {
    ScriptedPeer peer;
    const std::pair<SendOp, Opcode> table[] = {
        {SendOp::Send, Opcode::RcSendLast},
        {SendOp::SendImmediate, Opcode::RcSendLastImmediate},
        {SendOp::SendInvalidate, Opcode::RcSendLastInvalidate},
        {SendOp::WriteImmediate, Opcode::RcWriteLastImmediate}};
    std::uint32_t n = 0;
    for (const auto& [op, opcode] : table) {
        peer.post(op, kMtu + 8, n);
        ASSERT_EQ(peer.port.sent.size(), 2U);
        peer.port.sent.pop_front();
        peer.expect_sent(opcode, sent(n + 1));
        peer.peer_acks(sent(n + 1));
        peer.expect_completion(n, WcStatus::Success);
        n += 2;
    }
}

TEST(RcRequester, AtomicWriteAndFlushAreCompletedByAnEmptyRead) {
    ScriptedPeer peer;
    peer.post(SendOp::AtomicWrite, 8, 1);
    const SentPacket write = peer.expect_sent(Opcode::RcAtomicWrite, sent(0));
    EXPECT_EQ(write.packet.reth(), (wire::Reth{0x10000, RKey{77}, 8}));
    EXPECT_EQ(write.packet.payload[0], std::byte{5});
    peer.post(SendOp::Flush, 0, 2);
    peer.expect_sent(Opcode::RcFlush, sent(1));
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(0));
    peer.expect_completion(1, WcStatus::Success);
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(1));
    peer.expect_completion(2, WcStatus::Success);
}

TEST(RcRequester, AnInvalidationThatIsRefusedWaitsForWhatIsBeforeIt) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 8, 1);
    peer.post(SendOp::LocalInvalidate, 0, 2);
    peer.post(SendOp::Write, 8, 3);
    peer.expect_sent(Opcode::RcWriteOnly, sent(0));
    peer.expect_silence();
    peer.expect_no_completion();
    peer.peer_acks(sent(0));
    peer.expect_completion(1, WcStatus::Success);
    peer.expect_completion(2, WcStatus::WindowBindError);
    peer.expect_completion(3, WcStatus::FlushError);
}

// XRC has no ATOMIC WRITE and no FLUSH.
TEST(RcRequester, EveryOperationOfXrcHasItsOpcodeOrIsRefused) {
    ScriptedPeer peer({.type = QpType::XrcInitiator});
    std::uint32_t n = 0;
    for (const SendOp op :
         {SendOp::Write, SendOp::WriteImmediate, SendOp::Send, SendOp::SendImmediate, SendOp::Read,
          SendOp::CompareSwap, SendOp::FetchAdd, SendOp::SendInvalidate, SendOp::Flush,
          SendOp::AtomicWrite}) {
        SCOPED_TRACE(static_cast<int>(op));
        const SendWr wr = peer.send_wr(op, 8, n);
        const Result<void> posted = peer.engine.post_send(peer.now, *peer.qp, wr);
        if (wr.op == SendOp::AtomicWrite || wr.op == SendOp::Flush) {
            ASSERT_FALSE(posted);
            EXPECT_EQ(posted.error().code, EINVAL);
            continue;
        }
        ASSERT_TRUE(posted);
        peer.run();
        ASSERT_EQ(peer.port.sent.size(), 1U);
        EXPECT_EQ(peer.port.sent.front().packet.info->service, wire::Service::Xrc);
        EXPECT_EQ(peer.port.sent.front().packet.bth.psn, sent(n++));
        peer.port.sent.clear();
    }
}

TEST(RcRequester, OneAckRetiresAllBeforeItInOrder) {
    ScriptedPeer peer;
    for (std::uint64_t i = 0; i < 5; ++i) peer.post(SendOp::Write, 8, i, i != 2);
    peer.peer_acks(sent(3));
    peer.expect_completion(0, WcStatus::Success);
    peer.expect_completion(1, WcStatus::Success);
    peer.expect_completion(3, WcStatus::Success);  // 2 was not signalled.
    peer.expect_no_completion();
    peer.peer_acks(sent(4));
    peer.expect_completion(4, WcStatus::Success);
}

TEST(RcRequester, IgnoresAcksOfWhatItNeverSent) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 8, 1);
    peer.peer_acks(sent(1));
    peer.peer_acks(kSendPsn - 5);
    peer.expect_no_completion();
    EXPECT_EQ(peer.engine.counters()[transport::DropReason::StaleAck], 2U);
    peer.peer_acks(sent(0));
    peer.expect_completion(1, WcStatus::Success);
}

TEST(RcRequester, ResendsFromTheGapOnASequenceNak) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 4 * kMtu, 1);
    peer.port.sent.clear();
    peer.peer_naks(sent(2), NakCode::SequenceError);
    peer.expect_sent(Opcode::RcWriteMiddle, sent(2));
    peer.expect_sent(Opcode::RcWriteLast, sent(3));
    peer.expect_silence();
    peer.peer_acks(sent(3));
    peer.expect_completion(1, WcStatus::Success);
}

TEST(RcRequester, CountsRetriesExactlyAndProgressForgivesThem) {
    ScriptedPeer peer;  // retry_count 2.
    peer.post(SendOp::Write, 2 * kMtu, 1);
    peer.port.sent.clear();
    peer.after(kAckTimeout - 1us);
    peer.expect_silence();
    for (const Duration pause : {Duration(1us), kLaterAckTimeout}) {
        peer.after(pause);
        peer.expect_sent(Opcode::RcWriteFirst, sent(0));
        peer.expect_sent(Opcode::RcWriteLast, sent(1));
    }
    peer.peer_acks(sent(0));  // Progress: the count starts again.
    for (int resend = 0; resend < 2; ++resend) {
        peer.after(kLaterAckTimeout);
        peer.expect_sent(Opcode::RcWriteLast, sent(1));
    }
    peer.expect_no_completion();
    peer.after(kLaterAckTimeout);
    peer.expect_silence();
    peer.expect_completion(1, WcStatus::RetryExceededError);
    EXPECT_EQ(static_cast<int>(peer.qp->state()), static_cast<int>(QpState::Err));
}

// Many nodes that begin at once to write to one lose all of it, and time out together. After that
// each tries more often, and at times of its own.
TEST(RcRequester, TriesMoreOftenAfterATimeoutIfNothingWasEverAcknowledged) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 2 * kMtu, 1);
    peer.port.sent.clear();
    peer.after(kAckTimeout);
    peer.expect_sent(Opcode::RcWriteFirst, sent(0));
    peer.expect_sent(Opcode::RcWriteLast, sent(1));
    const Instant begun = peer.now;
    std::vector<Duration> times;
    while (peer.engine.counters()[Counter::AckTimeouts] < 2 && times.size() < 9) {
        peer.after(peer.engine.next_wakeup() - peer.now);
        if (peer.engine.counters()[Counter::AckTimeouts] < 2)
            peer.expect_sent(Opcode::RcWriteFirst, sent(0));
        times.push_back(peer.now - begun);
    }
    ASSERT_EQ(times.size(), 4U);
    const Duration whole = times[3];
    EXPECT_GT(whole, kAckTimeout);
    EXPECT_LE(whole, kLaterAckTimeout);
    for (const std::size_t i : {0, 1, 2}) {
        const Duration share = whole * ((2 << i) - 1) / 8;
        EXPECT_LE(share - 2ns, times[i]);
        EXPECT_LE(times[i], share + 2ns);
    }
    EXPECT_EQ(peer.engine.counters()[Counter::ResentByProbe], 3U);
}

TEST(RcRequester, ResendsEarlyWhenRoundTripsAreShortWithoutCountingIt) {
    ScriptedPeer peer({.retry_count = 0});
    peer.post(SendOp::Write, 8, 1);
    peer.after(10us);
    peer.peer_acks(sent(0));  // The round trip is known now.
    peer.expect_completion(1, WcStatus::Success);
    peer.post(SendOp::Write, 8, 2);
    peer.port.sent.clear();
    const Instant posted = peer.now;
    Duration pause = 3ms;
    for (int resend = 0; resend < 4; ++resend, pause *= 2) {
        peer.after(pause - 1us);
        peer.expect_silence();
        peer.after(1us);
        peer.expect_sent(Opcode::RcWriteOnly, sent(1));
    }
    peer.expect_no_completion();
    peer.after(kAckTimeout - (peer.now - posted));
    peer.expect_completion(2, WcStatus::RetryExceededError);
}

// Networks that lose long packets and carry short ones: explain tells how to find that out.
TEST(RcRequester, AFailureSaysWhetherAPacketOfThePathMtuWasEverAcknowledged) {
    for (const std::uint32_t length : {kMtu - 1, kMtu}) {
        ScriptedPeer peer({.retry_count = 0});
        peer.post(SendOp::Write, length, 1);
        peer.peer_acks(sent(0));
        peer.expect_completion(1, WcStatus::Success);
        peer.post(SendOp::Write, 2 * kMtu, 2);
        peer.after(kAckTimeout);
        peer.expect_completion(2, WcStatus::RetryExceededError);
        const transport::ReasonLog& log = peer.engine.reasons();
        EXPECT_EQ(log.find(log.last_id())->path_mtu, length < kMtu ? kMtu : 0);
    }
}

TEST(RcRequester, WaitsOutAnRnrNakAndCountsIt) {
    ScriptedPeer peer;  // rnr_retry 1.
    peer.post(SendOp::Send, 8, 1);
    peer.expect_sent(Opcode::RcSendOnly, sent(0));
    peer.peer_rnr(sent(0), 12);  // 0.64 ms.
    peer.after(639us);
    peer.expect_silence();
    peer.after(1us);
    peer.expect_sent(Opcode::RcSendOnly, sent(0));
    peer.peer_rnr(sent(0), 12);
    peer.expect_completion(1, WcStatus::RnrRetryExceededError);
}

TEST(RcRequester, NaksFailTheRequestAndFlushTheRestInOrder) {
    const std::pair<NakCode, WcStatus> table[] = {
        {NakCode::InvalidRequest, WcStatus::RemoteInvalidRequestError},
        {NakCode::RemoteAccess, WcStatus::RemoteAccessError},
        {NakCode::RemoteOperational, WcStatus::RemoteOperationError}};
    for (const auto& [code, status] : table) {
        ScriptedPeer peer;
        peer.post_receive(8, 100);
        for (std::uint64_t i = 0; i < 4; ++i) peer.post(SendOp::Write, 8, i, i == 0);
        peer.peer_naks(sent(1), code);
        peer.expect_completion(0, WcStatus::Success);
        peer.expect_completion(1, status);
        peer.expect_completion(2, WcStatus::FlushError);
        peer.expect_completion(3, WcStatus::FlushError);
        peer.expect_completion(100, WcStatus::FlushError);
        peer.expect_no_completion();
    }
}

TEST(RcRequester, ReadPlacesResponsesAndCompletesByThemOnly) {
    ScriptedPeer peer;
    peer.post(SendOp::Read, 2 * kMtu + 8, 1);
    const SentPacket request = peer.expect_sent(Opcode::RcReadRequest, sent(0));
    EXPECT_EQ(request.packet.reth().length, 2 * kMtu + 8);
    ScriptedPeer::Spec full{.payload_size = kMtu};
    peer.peer_sends(Opcode::RcReadResponseFirst, sent(0), full);
    peer.peer_sends(Opcode::RcReadResponseMiddle, sent(1), full);
    peer.peer_acks(sent(2));  // Cannot stand for a response: the READ is asked for again.
    peer.expect_no_completion();
    const SentPacket again = peer.expect_sent(Opcode::RcReadRequest, sent(2));
    EXPECT_EQ(again.packet.reth(), (wire::Reth{0x10000 + 2 * kMtu, RKey{77}, 8}));
    peer.peer_sends(Opcode::RcReadResponseOnly, sent(2), {.payload_size = 8});
    peer.expect_completion(1, WcStatus::Success);
    EXPECT_EQ(peer.memory[2 * kMtu + 7], std::byte{0x5a});
    EXPECT_NE(peer.memory[2 * kMtu + 8], std::byte{0x5a});
}

TEST(RcRequester, AsksOnceForALostReadResponse) {
    ScriptedPeer peer;
    peer.post(SendOp::Read, 4 * kMtu, 1);
    peer.port.sent.clear();
    ScriptedPeer::Spec full{.payload_size = kMtu};
    peer.peer_sends(Opcode::RcReadResponseFirst, sent(0), full);
    peer.peer_sends(Opcode::RcReadResponseMiddle, sent(2), full);
    peer.peer_sends(Opcode::RcReadResponseLast, sent(3), full);
    const SentPacket again = peer.expect_sent(Opcode::RcReadRequest, sent(1));
    EXPECT_EQ(again.packet.reth().length, 3 * kMtu);
    peer.expect_silence();
}

TEST(RcRequester, LargeReadsAreAskedForInPieces) {
    ScriptedPeer peer;
    peer.post(SendOp::Read, 100 * kMtu, 1);
    const SentPacket first = peer.expect_sent(Opcode::RcReadRequest, sent(0));
    const std::uint32_t piece = first.packet.reth().length;
    EXPECT_LT(piece, 100 * kMtu);
    EXPECT_EQ(piece % kMtu, 0U);
    const SentPacket second = peer.expect_sent(Opcode::RcReadRequest, sent(piece / kMtu));
    EXPECT_EQ(second.packet.reth().address, 0x10000 + piece);
}

TEST(RcRequester, AtomicsReturnTheOldValue) {
    ScriptedPeer peer;
    peer.post(SendOp::FetchAdd, 8, 1);
    const SentPacket add = peer.expect_sent(Opcode::RcFetchAdd, sent(0));
    EXPECT_EQ(add.packet.atomic_eth().swap_or_add, 5U);
    peer.post(SendOp::CompareSwap, 8, 2);
    const SentPacket swap = peer.expect_sent(Opcode::RcCompareSwap, sent(1));
    EXPECT_EQ(swap.packet.atomic_eth().compare, 5U);
    EXPECT_EQ(swap.packet.atomic_eth().swap_or_add, 6U);
    ScriptedPeer::Spec answer;
    answer.extensions.atomic_ack = {0x0102'0304'0506'0708};
    peer.peer_sends(Opcode::RcAtomicAck, sent(0), answer);
    peer.expect_completion(1, WcStatus::Success);
    std::uint64_t value = 0;
    std::memcpy(&value, peer.memory.data(), 8);
    EXPECT_EQ(value, 0x0102'0304'0506'0708U);
    peer.peer_sends(Opcode::RcAtomicAck, sent(1), answer);
    peer.expect_completion(2, WcStatus::Success);
}

TEST(RcRequester, KeepsToReadAtomicMaxAndFence) {
    ScriptedPeer peer({.read_atomic_max = 2});
    for (std::uint64_t i = 0; i < 3; ++i) peer.post(SendOp::FetchAdd, 8, i);
    SendWr fenced = peer.send_wr(SendOp::Write, 8, 3);
    fenced.fence = true;
    ASSERT_TRUE(peer.engine.post_send(peer.now, *peer.qp, fenced));
    peer.run();
    peer.expect_sent(Opcode::RcFetchAdd, sent(0));
    peer.expect_sent(Opcode::RcFetchAdd, sent(1));
    peer.expect_silence();
    peer.peer_sends(Opcode::RcAtomicAck, sent(0));
    peer.expect_sent(Opcode::RcFetchAdd, sent(2));
    peer.expect_silence();
    peer.peer_sends(Opcode::RcAtomicAck, sent(1));
    peer.expect_silence();
    peer.peer_sends(Opcode::RcAtomicAck, sent(2));
    peer.expect_sent(Opcode::RcWriteOnly, sent(3));
}

TEST(RcRequester, CreditsHoldBackAllButOneProbe) {
    ScriptedPeer peer;
    peer.post(SendOp::Send, 8, 0);
    peer.expect_sent(Opcode::RcSendOnly, sent(0));
    peer.peer_acks(sent(0), /*credits=*/1, /*msn=*/1);
    for (std::uint64_t i = 1; i < 4; ++i) peer.post(SendOp::Send, 8, i);
    peer.expect_sent(Opcode::RcSendOnly, sent(1));
    peer.expect_silence();
    peer.peer_acks(sent(1), 0, 2);
    peer.expect_sent(Opcode::RcSendOnly, sent(2));  // The probe.
    peer.expect_silence();
    peer.peer_acks(sent(2), 4, 3);
    peer.expect_sent(Opcode::RcSendOnly, sent(3));
}

TEST(RcRequester, WritesNeedNoCredits) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 8, 0);
    peer.peer_acks(sent(0), 0, 1);
    for (std::uint64_t i = 1; i < 4; ++i) peer.post(SendOp::Write, 8, i);
    EXPECT_EQ(peer.port.sent.size(), 4U);
}

TEST(RcRequester, TheWindowBoundsWhatIsInFlight) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 120 * kMtu, 1);
    const std::size_t flight = peer.port.sent.size();
    EXPECT_LT(flight, 120U);
    EXPECT_TRUE(peer.port.sent.back().packet.bth.ack_request) << "else nobody would open it again";
    peer.peer_acks(sent(static_cast<std::uint32_t>(flight) - 1));
    EXPECT_GT(peer.port.sent.size(), flight);
}

TEST(RcRequester, InlineDataMayChangeAfterThePost) {
    ScriptedPeer peer;
    SendWr wr = peer.send_wr(SendOp::Send, 16, 1);
    wr.inlined = true;
    const std::byte before = peer.memory[3];
    ASSERT_TRUE(peer.engine.post_send(peer.now, *peer.qp, wr));
    peer.memory[3] = std::byte{0xee};
    peer.run();
    EXPECT_EQ(peer.expect_sent(Opcode::RcSendOnly, sent(0)).packet.payload[3], before);
}

TEST(RcRequester, ABadLocalKeyFailsOnlyAfterWhatCameBefore) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 8, 1);
    SendWr wr = peer.send_wr(SendOp::Write, 8, 2);
    const mem::Sge bad{peer.address(), 8, LKey{12345}};
    wr.sges = {&bad, 1};
    ASSERT_TRUE(peer.engine.post_send(peer.now, *peer.qp, wr));
    peer.post(SendOp::Write, 8, 3);
    peer.expect_sent(Opcode::RcWriteOnly, sent(0));
    peer.expect_silence();
    peer.peer_acks(sent(0));
    peer.expect_completion(1, WcStatus::Success);
    peer.expect_completion(2, WcStatus::LocalProtectionError);
    peer.expect_completion(3, WcStatus::FlushError);
}

TEST(RcRequester, DrainsInSqdAndSaysSo) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 8, 1);
    ASSERT_TRUE(peer.modify(QpState::Sqd));
    peer.post(SendOp::Write, 8, 2);
    peer.expect_sent(Opcode::RcWriteOnly, sent(0));
    peer.expect_silence();
    EXPECT_TRUE(peer.events.events.empty());
    EXPECT_TRUE(peer.qp->machine().progress().draining);
    peer.peer_acks(sent(0));
    EXPECT_FALSE(peer.qp->machine().progress().draining);
    ASSERT_EQ(peer.events.events.size(), 1U);
    EXPECT_EQ(static_cast<int>(peer.events.events[0]),
              static_cast<int>(transport::AsyncEventType::SendQueueDrained));
    ASSERT_TRUE(peer.modify(QpState::Rts));
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, sent(1));
}

TEST(RcRequester, AnswersAfterARewindAreNotSentAgain) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 4 * kMtu, 1);
    peer.port.sent.clear();
    peer.after(kAckTimeout);
    peer.port.sent.clear();
    peer.peer_acks(sent(3));  // The acknowledgement of the first flight was merely late.
    peer.expect_completion(1, WcStatus::Success);
    peer.post(SendOp::Write, 8, 2);
    peer.expect_sent(Opcode::RcWriteOnly, sent(4));
    peer.expect_silence();
}

}  // namespace
}  // namespace feroce::script
