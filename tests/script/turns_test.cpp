// Queue pairs that share a window, which opens by one packet a round.
#include "scripted_peer.hpp"

namespace feroce::script::turns_test {
namespace {

constexpr int kRounds = 40;

QueuePair* another(ScriptedPeer& peer) {
    transport::QpInit init;
    init.pd = peer.pd;
    init.send_cq = init.receive_cq = &peer.cq;
    init.capabilities = {64, 64, 4, 4, 64};
    QueuePair* qp = *peer.engine.create_qp(init);
    QpAttributes attributes = peer.qp->attributes();
    for (const QpState to : {QpState::Init, QpState::Rtr, QpState::Rts}) {
        AttributeMask given = transport::transition(QpType::Rc, qp->state(), to).required;
        given.raw |= static_cast<std::uint32_t>(Attribute::State);
        attributes.state = to;
        EXPECT_TRUE(peer.engine.modify_qp(peer.now, *qp, attributes, given));
    }
    return qp;
}

void post(ScriptedPeer& peer, QueuePair* qp, std::uint32_t packets) {
    peer.qp = qp;
    peer.post(SendOp::Write, packets * kMtu, 1);
}

// How many packets one that waits with much sends, beside one that posts a packet a round.
std::uint32_t sent_by_waiting(bool other_owes) {
    ScriptedPeer peer({.timeout = 20});
    QueuePair* const filling = peer.qp;
    QueuePair* const waiting = another(peer);
    QueuePair* const other = another(peer);
    EXPECT_EQ(filling->window(), other->window());
    post(peer, other, 1);
    peer.run();
    post(peer, filling, 42);
    peer.run();
    post(peer, waiting, 128);
    peer.run();
    other->window()->on_loss(peer.now);  // It grows slowly from now on.
    const Psn before = waiting->machine().progress().next;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
        peer.qp = other;
        if (other_owes)
            peer.peer_delivers(Opcode::RcWriteOnly, kReceivePsn + round,
                               {.extensions = {.reth = peer.reth(8)}, .payload_size = 8});
        post(peer, other, 1);
        peer.run();
        peer.qp = filling;
        peer.peer_acks(kSendPsn + round);
        while (peer.poll()) continue;
    }
    return static_cast<std::uint32_t>(distance(before, waiting->machine().progress().next));
}

TEST(Turns, AreNotBegunByAnAcknowledgement) {
    const std::uint32_t alone = sent_by_waiting(false);
    EXPECT_GT(alone, 30U);
    EXPECT_EQ(sent_by_waiting(true), alone);
}

}  // namespace
}  // namespace feroce::script::turns_test
