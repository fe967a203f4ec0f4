// How a responder comes to an end: refusals that wait for answers, receive queues that go away
// between two packets, and what is the peer's business and what is not.
#include "scripted_peer.hpp"

namespace feroce::script {
namespace {

using transport::Rule;
using wire::NakCode;

constexpr std::uint32_t kLongRead = 100 * kMtu;  // More packets than a turn has.

Psn asked(std::uint32_t n) {
    return kReceivePsn + n;
}

ScriptedPeer::Spec with_reth(const wire::Reth& reth, std::size_t payload = 0) {
    ScriptedPeer::Spec spec{.payload_size = payload};
    spec.extensions.reth = reth;
    return spec;
}

void expect_responses(ScriptedPeer& peer, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i)
        peer.expect_sent(i == 0           ? Opcode::RcReadResponseFirst
                         : i + 1 == count ? Opcode::RcReadResponseLast
                                          : Opcode::RcReadResponseMiddle,
                         asked(i));
}

Rule first_rule(ScriptedPeer& peer) {
    const transport::Reason* reason = peer.engine.reasons().find(peer.qp->first_reason());
    return reason == nullptr ? Rule::None : reason->rule;
}

// Any packet out of sequence would keep all queue pairs of the shard waiting for a whole READ.
TEST(RcEndings, AGapSendsNothingBeforeItsTurn) {
    ScriptedPeer peer;
    peer.peer_delivers(Opcode::RcReadRequest, asked(0), with_reth(peer.reth(kLongRead)));
    peer.peer_delivers(Opcode::RcSendOnly, asked(150), {.payload_size = 8});
    EXPECT_EQ(peer.qp->packets_sent(), 0U);
    peer.run();
    expect_responses(peer, 100);
    peer.expect_nak(asked(100), NakCode::SequenceError);
    peer.expect_silence();
}

TEST(RcEndings, AGapThatCloses) {
    ScriptedPeer peer;
    peer.post_receive(64, 1);
    peer.peer_delivers(Opcode::RcReadRequest, asked(0), with_reth(peer.reth(2 * kMtu)));
    peer.peer_delivers(Opcode::RcSendOnly, asked(3), {.payload_size = 8});
    peer.peer_delivers(Opcode::RcWriteOnly, asked(2), with_reth(peer.reth(8), 8));
    peer.run();
    expect_responses(peer, 2);
    peer.expect_ack(asked(2));
    peer.expect_silence();
}

TEST(RcEndings, ARefusalFollowsTheAnswersBeforeIt) {
    ScriptedPeer peer;
    wire::Reth bad = peer.reth(8);
    bad.rkey.raw ^= 1;
    peer.peer_delivers(Opcode::RcReadRequest, asked(0), with_reth(peer.reth(kLongRead)));
    peer.peer_delivers(Opcode::RcWriteOnly, asked(100), with_reth(bad, 8));
    EXPECT_EQ(peer.qp->packets_sent(), 0U);
    EXPECT_EQ(static_cast<int>(peer.qp->state()), static_cast<int>(QpState::Rts));
    // What comes after it comes too late.
    peer.peer_delivers(Opcode::RcWriteOnly, asked(100), with_reth(peer.reth(8), 8));
    peer.peer_delivers(Opcode::RcReadRequest, asked(0), with_reth(peer.reth(kLongRead)));
    peer.run();
    expect_responses(peer, 100);
    peer.expect_nak(asked(100), NakCode::RemoteAccess);
    peer.expect_silence();
    EXPECT_EQ(static_cast<int>(peer.qp->state()), static_cast<int>(QpState::Err));
    EXPECT_NE(peer.memory[0], std::byte{0x5a});
}

TEST(RcEndings, AReceiverNotReadyIsToldAfterTheAnswers) {
    ScriptedPeer peer;
    peer.peer_delivers(Opcode::RcReadRequest, asked(0), with_reth(peer.reth(2 * kMtu)));
    peer.peer_delivers(Opcode::RcSendOnly, asked(2), {.payload_size = 8});
    peer.run();
    expect_responses(peer, 2);
    peer.expect_ack(asked(2), wire::Syndrome::Kind::Rnr);
    peer.expect_silence();
    // Or not at all, if it is ready when asked again.
    peer.peer_delivers(Opcode::RcReadRequest, asked(0), with_reth(peer.reth(2 * kMtu)));
    peer.peer_delivers(Opcode::RcSendOnly, asked(2), {.payload_size = 8});
    peer.post_receive(64, 1);
    peer.peer_delivers(Opcode::RcSendOnly, asked(2), {.payload_size = 8});
    peer.run();
    expect_responses(peer, 2);
    peer.expect_ack(asked(2));
    peer.expect_completion(1, WcStatus::Success);
}

// IBTA's class J: the message was good and is acknowledged; the receiver alone has the error.
TEST(RcEndings, AnInvalidationThatIsRefusedIsNoNak) {
    ScriptedPeer peer;
    peer.post_receive(64, 1);
    peer.post_receive(64, 2);
    ScriptedPeer::Spec spec{.payload_size = 8};
    spec.extensions.invalidate = RKey{peer.keys.rkey.raw};  // A region's, not a window's.
    peer.peer_sends(Opcode::RcSendOnlyInvalidate, asked(0), spec);
    peer.expect_ack(asked(0));
    peer.expect_silence();
    peer.expect_completion(1, WcStatus::RemoteInvalidRequestError);
    peer.expect_completion(2, WcStatus::FlushError);
    EXPECT_EQ(static_cast<int>(peer.qp->state()), static_cast<int>(QpState::Err));
    EXPECT_EQ(first_rule(peer), Rule::InvalidateRefused);
    peer.peer_sends(Opcode::RcSendOnlyInvalidate, asked(0), spec);
    peer.expect_ack(asked(0));  // Said again when asked again.
}

TEST(RcEndings, AWriteThatIsRefusedUsesUpTheReceiveOfItsImmediate) {
    ScriptedPeer peer;
    peer.post_receive(0, 1);
    peer.post_receive(0, 2);
    wire::Reth bad = peer.reth(8);
    bad.rkey.raw ^= 1;
    peer.peer_sends(Opcode::RcWriteOnlyImmediate, asked(0), with_reth(bad, 8));
    peer.expect_nak(asked(0), NakCode::RemoteAccess);
    peer.expect_completion(1, WcStatus::LocalAccessError);
    peer.expect_completion(2, WcStatus::FlushError);
}

// Found by simulation: a region deregistered while a WRITE to it was under way.
TEST(RcEndings, AWriteThatLosesItsRegionUsesUpTheReceiveOfItsImmediate) {
    ScriptedPeer peer;
    peer.post_receive(0, 1);
    peer.post_receive(0, 2);
    ScriptedPeer::Spec first = with_reth(peer.reth(kMtu + 8), kMtu);
    peer.peer_sends(Opcode::RcWriteFirst, asked(0), first);
    peer.expect_ack(asked(0));
    ASSERT_TRUE(peer.table.deregister_region(peer.keys.lkey));
    peer.peer_sends(Opcode::RcWriteLastImmediate, asked(1), {.payload_size = 8});
    peer.expect_nak(asked(1), NakCode::RemoteAccess);
    peer.expect_completion(1, WcStatus::LocalAccessError);
    peer.expect_completion(2, WcStatus::FlushError);
}

class XrcEndings : public ::testing::Test {
protected:
    XrcEndings() {
        const mem::Sge sge{peer.address(), 4 * kMtu, peer.keys.lkey};
        EXPECT_TRUE(peer.srq.post({7, {&sge, 1}}));
        send(Opcode::XrcSendFirst, 0, kMtu);
        EXPECT_EQ(peer.srq.available(), 0U);  // It is in the target's hand now.
        // As ibv_destroy_srq does it; then nothing counts its completion queue as used.
        peer.xrc.unregister_srq(peer.srq_number);
        peer.port.sent.clear();
    }
    void send(Opcode opcode, std::uint32_t n, std::size_t size) {
        ScriptedPeer::Spec spec{.payload_size = size};
        spec.extensions.xrceth.srq = peer.srq_number;
        peer.peer_sends(opcode, asked(n), spec);
    }

    ScriptedPeer peer{{.type = QpType::XrcTarget}};
};

TEST_F(XrcEndings, AMessageWhoseQueueWasDestroyedIsRefused) {
    const std::byte before = peer.memory[kMtu];
    send(Opcode::XrcSendLast, 1, 100);
    ASSERT_EQ(peer.port.sent.size(), 1U);
    EXPECT_EQ(peer.port.sent[0].packet.aeth().syndrome,
              wire::Syndrome::nak(NakCode::RemoteOperational));
    EXPECT_EQ(static_cast<int>(peer.qp->state()), static_cast<int>(QpState::Err));
    EXPECT_EQ(first_rule(peer), Rule::ReceiveQueueGone);
    EXPECT_EQ(peer.memory[kMtu], before);  // Nothing is written for a queue that is gone,
    peer.expect_no_completion();           // and nothing told to its completion queue.
}

TEST_F(XrcEndings, AReceiveWhoseQueueWasDestroyedIsNotFlushed) {
    ASSERT_TRUE(peer.modify(QpState::Err));
    peer.expect_no_completion();
}

}  // namespace
}  // namespace feroce::script
