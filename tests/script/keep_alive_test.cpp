// A queue pair without work asks whether its peer is there, and is asked by one of another maker.
// Neither may change anything: no number is taken, nothing is counted, nothing is executed.
#include "scripted_peer.hpp"

namespace feroce::script {
namespace {

using transport::Counter;
using transport::DropReason;
using transport::Progress;

void write_once(ScriptedPeer& peer, Psn psn, std::uint64_t wr_id) {
    peer.post(SendOp::Write, 100, wr_id);
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, psn);
    peer.peer_acks(psn);
    peer.expect_completion(wr_id, WcStatus::Success);
}

bool ask(ScriptedPeer& peer) {
    return peer.engine.ask_peer(peer.now, *peer.qp);
}

void expect_question(ScriptedPeer& peer, Psn psn) {
    const SentPacket question = peer.expect_sent(Opcode::RcWriteOnly, psn);
    EXPECT_TRUE(question.packet.bth.ack_request);
    EXPECT_TRUE(question.packet.payload.empty());
    EXPECT_EQ(question.packet.reth().length, 0U);
    peer.expect_silence();
}

void expect_same(const Progress& a, const Progress& b) {
    EXPECT_EQ(a.next, b.next);
    EXPECT_EQ(a.unacknowledged, b.unacknowledged);
    EXPECT_EQ(a.expected, b.expected);
    EXPECT_EQ(a.draining, b.draining);
    EXPECT_EQ(a.msn, b.msn);
    EXPECT_EQ(a.in_flight_bytes, b.in_flight_bytes);
    EXPECT_EQ(a.credits, b.credits);
    EXPECT_EQ(a.retries_left, b.retries_left);
    EXPECT_EQ(a.rnr_retries_left, b.rnr_retries_left);
}

TEST(KeepAlive, TheQuestionIsADuplicateOfTheLastAcknowledgedPacket) {
    ScriptedPeer peer;
    write_once(peer, kSendPsn, 1);
    const Progress before = peer.qp->machine().progress();
    const std::uint64_t heard = peer.qp->packets_received();

    ASSERT_TRUE(ask(peer));
    expect_question(peer, kSendPsn);
    EXPECT_EQ(peer.engine.next_wakeup(), kNever) << "nothing waits for the answer";
    peer.peer_acks(kSendPsn);
    EXPECT_GT(peer.qp->packets_received(), heard);
    expect_same(peer.qp->machine().progress(), before);
    EXPECT_EQ(peer.qp->window()->in_flight(), 0U);
    EXPECT_EQ(peer.engine.counters()[Counter::Retransmitted], 0U);
    EXPECT_EQ(peer.engine.counters()[Counter::CompleterRetry], 0U);
    peer.expect_no_completion();

    write_once(peer, kSendPsn + 1, 2);  // As if nobody had asked.
}

TEST(KeepAlive, SilenceCostsNothingByItself) {
    ScriptedPeer peer;
    write_once(peer, kSendPsn, 1);
    const Progress before = peer.qp->machine().progress();
    for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(ask(peer));
        expect_question(peer, kSendPsn);
        peer.after(std::chrono::seconds(10));
        peer.expect_silence();
    }
    expect_same(peer.qp->machine().progress(), before);
    EXPECT_EQ(peer.qp->state(), QpState::Rts);
}

TEST(KeepAlive, ARefusalIsASignOfLifeToo) {
    ScriptedPeer peer;
    write_once(peer, kSendPsn, 1);
    for (const wire::NakCode code : {wire::NakCode::SequenceError, wire::NakCode::InvalidRequest,
                                     wire::NakCode::RemoteAccess}) {
        const std::uint64_t heard = peer.qp->packets_received();
        ASSERT_TRUE(ask(peer));
        expect_question(peer, kSendPsn);
        peer.peer_naks(kSendPsn + 1, code);
        EXPECT_GT(peer.qp->packets_received(), heard);
        EXPECT_EQ(peer.qp->state(), QpState::Rts);
    }
    write_once(peer, kSendPsn + 1, 2);
}

// A number that was never used lies in the half of all numbers that are duplicates.
TEST(KeepAlive, BeforeTheFirstRequestTheNumberBeforeItIsUsed) {
    ScriptedPeer peer({.send_psn = Psn(0)});
    ASSERT_TRUE(ask(peer));
    expect_question(peer, Psn(0) - 1);
    peer.peer_acks(Psn(0) - 1);
    write_once(peer, Psn(0), 1);
}

// rxe answers 0xffffff before it has got a request. Here that would acknowledge what comes next.
TEST(KeepAlive, NobodyIsAskedWhoseAnswerCouldBeMistaken) {
    ScriptedPeer peer({.send_psn = Psn(0xff'fff0)});
    EXPECT_FALSE(ask(peer));
    peer.expect_silence();
    write_once(peer, Psn(0xff'fff0), 1);
    EXPECT_TRUE(ask(peer));
    expect_question(peer, Psn(0xff'fff0));
}

TEST(KeepAlive, AnAnswerThatIsLateDoesNotAcknowledgeWhatFollowed) {
    ScriptedPeer peer;
    write_once(peer, kSendPsn, 1);
    ASSERT_TRUE(ask(peer));
    expect_question(peer, kSendPsn);
    peer.post(SendOp::Write, 100, 2);
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn + 1);
    peer.peer_acks(kSendPsn);
    peer.expect_no_completion();
    peer.peer_acks(kSendPsn + 1);
    peer.expect_completion(2, WcStatus::Success);
}

TEST(KeepAlive, AQueuePairWithWorkDoesNotAsk) {
    ScriptedPeer peer;
    write_once(peer, kSendPsn, 1);
    peer.post(SendOp::Write, 100, 2);
    EXPECT_FALSE(ask(peer)) << "posted";
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn + 1);
    EXPECT_FALSE(ask(peer)) << "in flight";
    peer.expect_silence();
    peer.peer_acks(kSendPsn + 1);
    peer.expect_completion(2, WcStatus::Success);
    EXPECT_TRUE(ask(peer));
}

TEST(KeepAlive, OnlyInRts) {
    ScriptedPeer peer;
    write_once(peer, kSendPsn, 1);
    ASSERT_TRUE(peer.modify(QpState::Sqd));
    peer.run();
    ASSERT_EQ(peer.events.events.size(), 1U) << "drained";
    EXPECT_FALSE(ask(peer));
    ASSERT_TRUE(peer.modify(QpState::Rts));
    EXPECT_TRUE(ask(peer));
    expect_question(peer, kSendPsn);
    ASSERT_TRUE(peer.modify(QpState::Err));
    EXPECT_FALSE(ask(peer));
    peer.expect_silence();
    EXPECT_EQ(peer.events.events.size(), 1U);
}

TEST(KeepAlive, OtherKindsOfQueuePairsDoNot) {
    for (const QpType type : {QpType::Uc, QpType::XrcTarget}) {
        ScriptedPeer peer({.type = type});
        EXPECT_FALSE(ask(peer));
        peer.expect_silence();
    }
}

void write_once_to(ScriptedPeer& peer, SrqNumber srq, Psn psn, std::uint64_t wr_id) {
    transport::SendWr wr;
    wr.wr_id = wr_id;
    wr.op = SendOp::Write;
    wr.signaled = true;
    wr.remote_srq = srq;
    ASSERT_TRUE(peer.engine.post_send(peer.now, *peer.qp, wr));
    peer.run();
    peer.expect_sent(Opcode::XrcWriteOnly, psn);
    ScriptedPeer::Spec ack;
    ack.extensions.aeth = {wire::Syndrome::ack(wire::kNoCredits), 1};
    peer.peer_sends(Opcode::XrcAck, psn, ack);
    peer.expect_completion(wr_id, WcStatus::Success);
}

// It names a queue that the peer has had, for the peer may look it up.
TEST(KeepAlive, AnXrcInitiatorAsksOnceItHasSentSomething) {
    ScriptedPeer peer({.type = QpType::XrcInitiator});
    EXPECT_FALSE(ask(peer)) << "it knows no queue of the peer's";
    peer.expect_silence();
    for (std::uint32_t n = 0; n < 2; ++n) {
        write_once_to(peer, SrqNumber{0x1111 + n}, kSendPsn + n, n);
        const Progress before = peer.qp->machine().progress();
        const std::uint64_t heard = peer.qp->packets_received();
        ASSERT_TRUE(ask(peer));
        const SentPacket question = peer.expect_sent(Opcode::XrcWriteOnly, kSendPsn + n);
        EXPECT_TRUE(question.packet.bth.ack_request);
        EXPECT_EQ(question.packet.reth().length, 0U);
        EXPECT_EQ(question.packet.xrceth().srq, SrqNumber{0x1111 + n});
        peer.expect_silence();
        ScriptedPeer::Spec answer;
        answer.extensions.aeth = {wire::Syndrome::ack(wire::kNoCredits), 1};
        peer.peer_sends(Opcode::XrcAck, kSendPsn + n, answer);
        EXPECT_GT(peer.qp->packets_received(), heard);
        expect_same(peer.qp->machine().progress(), before);
        peer.expect_no_completion();
    }
}

TEST(KeepAlive, AnXrcTargetAcknowledgesAQuestionWhateverQueueItNames) {
    ScriptedPeer peer({.type = QpType::XrcTarget, .access = 0});
    for (const SrqNumber srq : {peer.srq_number, SrqNumber{peer.srq_number.raw + 1}}) {
        ScriptedPeer::Spec question;
        question.extensions.xrceth.srq = srq;
        peer.peer_sends(Opcode::XrcWriteOnly, kReceivePsn - 1, question);
        const SentPacket answer = peer.expect_sent(Opcode::XrcAck, kReceivePsn - 1);
        EXPECT_EQ(answer.packet.aeth().syndrome, wire::Syndrome::ack(wire::kNoCredits));
        peer.expect_no_completion();
        EXPECT_NE(peer.qp->state(), QpState::Err);
    }
}

TEST(KeepAlive, GivingUpFlushesReceivesAndSaysWhy) {
    ScriptedPeer peer;
    peer.post_receive(64, 7);
    peer.engine.give_up_peer(peer.now, *peer.qp);
    peer.run();
    EXPECT_EQ(peer.qp->state(), QpState::Err);
    const std::optional<Completion> flushed = peer.poll();
    ASSERT_TRUE(flushed.has_value());
    EXPECT_EQ(flushed->status, WcStatus::FlushError);
    const transport::Reason* why = peer.engine.reasons().find(flushed->reason);
    ASSERT_NE(why, nullptr);
    EXPECT_EQ(why->rule, transport::Rule::PeerSilent);
    EXPECT_NE(describe(*why).find("FEROCE_KEEPALIVE"), std::string::npos);
}

TEST(KeepAlive, GivingUpLeavesSendsToTheirRetries) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 100, 1);
    peer.run();
    peer.engine.give_up_peer(peer.now, *peer.qp);
    EXPECT_EQ(peer.qp->state(), QpState::Rts);
    peer.after(std::chrono::milliseconds(1));
    peer.peer_acks(kSendPsn);
    peer.expect_completion(1, WcStatus::Success);
}

// The other side: before and after the first request, without a receive, without permissions.
TEST(KeepAlive, AQuestionIsAcknowledgedAndNotExecuted) {
    ScriptedPeer peer({.access = 0});
    peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn - 1);
    peer.expect_ack(kReceivePsn - 1);
    peer.post_receive(64, 1);
    peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn - 1);
    peer.expect_ack(kReceivePsn - 1);
    peer.expect_no_completion();
    ScriptedPeer::Spec greeting;
    greeting.payload_size = 10;
    peer.peer_sends(Opcode::RcSendOnly, kReceivePsn, greeting);
    peer.expect_ack(kReceivePsn);
    peer.expect_completion(1, WcStatus::Success);
    peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn);
    peer.expect_ack(kReceivePsn);
    peer.expect_no_completion();
    EXPECT_EQ(peer.qp->state(), QpState::Rts);
}

}  // namespace
}  // namespace feroce::script
