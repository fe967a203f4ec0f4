// Attributes that change while the send queue is drained (SQD), and then count.
#include "scripted_peer.hpp"

namespace feroce::script {
namespace {

using transport::DropReason;

constexpr Gid kElsewhere = Gid::from_v4(0x7f00'0003);

// To SQD, change, and back to RTS.
Result<void> change(ScriptedPeer& peer, const QpAttributes& attributes, Attribute attribute) {
    TRY(peer.modify(QpState::Sqd));
    TRY(peer.engine.modify_qp(peer.now, *peer.qp, attributes, mask({attribute})));
    return peer.modify(QpState::Rts);
}

QpAttributes address_of(const Gid& destination) {
    QpAttributes a;
    a.address.source = kOurs;
    a.address.destination = destination;
    return a;
}

TEST(Sqd, APeerThatMovedIsHeardAtItsNewAddress) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 100, 1);
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    peer.peer_acks(kSendPsn);  // Its source port is known from now on.
    peer.expect_completion(1, WcStatus::Success);

    ASSERT_TRUE(change(peer, address_of(kElsewhere), Attribute::AddressVector));
    peer.peer_address = kElsewhere;
    peer.peer_port = kPeerPort + 1;
    peer.post(SendOp::Write, 100, 2);
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn + 1);
    peer.peer_acks(kSendPsn + 1);
    peer.expect_completion(2, WcStatus::Success);
    EXPECT_EQ(peer.engine.counters()[DropReason::WrongSourcePort], 0U);
}

// A window belongs to a destination: the old one's must not hold back what goes to the new one, and
// is not told of what the new one acknowledges.
TEST(Sqd, TheWindowIsThatOfTheNewAddress) {
    ScriptedPeer peer;
    const transport::SendWindow* const old = peer.qp->window;
    QueuePair* other = nullptr;  // Keeps the old window in being.
    {
        transport::QpInit init;
        init.pd = peer.pd;
        init.send_cq = init.receive_cq = &peer.cq;
        other = *peer.engine.create_qp(init);
        QpAttributes a = peer.qp->attributes;
        for (const QpState to : {QpState::Init, QpState::Rtr}) {
            AttributeMask given = transport::transition(QpType::Rc, other->state(), to).required;
            given.raw |= static_cast<std::uint32_t>(Attribute::State);
            a.state = to;
            ASSERT_TRUE(peer.engine.modify_qp(peer.now, *other, a, given));
        }
        ASSERT_EQ(other->window, old);
    }
    // Not drained yet: what is in flight goes along.
    peer.post(SendOp::Write, 100, 1);
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    const std::uint32_t in_flight = old->in_flight();
    ASSERT_GT(in_flight, 0U);
    ASSERT_TRUE(change(peer, address_of(kElsewhere), Attribute::AddressVector));
    EXPECT_NE(peer.qp->window, old);
    EXPECT_EQ(old->in_flight(), 0U);
    EXPECT_EQ(peer.qp->window->in_flight(), in_flight);
    peer.peer_address = kElsewhere;
    peer.peer_acks(kSendPsn);
    peer.expect_completion(1, WcStatus::Success);
    EXPECT_EQ(peer.qp->window->in_flight(), 0U);
    peer.engine.destroy_qp(*other);
}

}  // namespace
}  // namespace feroce::script
