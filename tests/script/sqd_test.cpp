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
    const transport::SendWindow* const old = peer.qp->window();
    QueuePair* other = nullptr;  // Keeps the old window in being.
    {
        transport::QpInit init;
        init.pd = peer.pd;
        init.send_cq = init.receive_cq = &peer.cq;
        other = *peer.engine.create_qp(init);
        QpAttributes a = peer.qp->attributes();
        for (const QpState to : {QpState::Init, QpState::Rtr}) {
            AttributeMask given = transport::transition(QpType::Rc, other->state(), to).required;
            given.raw |= static_cast<std::uint32_t>(Attribute::State);
            a.state = to;
            ASSERT_TRUE(peer.engine.modify_qp(peer.now, *other, a, given));
        }
        ASSERT_EQ(other->window(), old);
    }
    // Not drained yet: what is in flight goes along.
    peer.post(SendOp::Write, 100, 1);
    peer.run();
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    const std::uint32_t in_flight = old->in_flight();
    ASSERT_GT(in_flight, 0U);
    ASSERT_TRUE(change(peer, address_of(kElsewhere), Attribute::AddressVector));
    EXPECT_NE(peer.qp->window(), old);
    EXPECT_EQ(old->in_flight(), 0U);
    EXPECT_EQ(peer.qp->window()->in_flight(), in_flight);
    peer.peer_address = kElsewhere;
    peer.peer_acks(kSendPsn);
    peer.expect_completion(1, WcStatus::Success);
    EXPECT_EQ(peer.qp->window()->in_flight(), 0U);
    peer.engine.destroy_qp(*other);
}

// A peer that did so ended the process: there was room for as many as before.
TEST(Sqd, MoreReadsThanBeforeMayBeAskedForAgain) {
    ScriptedPeer peer({.dest_read_atomic_max = 1});
    QpAttributes a;
    a.dest_read_atomic_max = 16;
    ASSERT_TRUE(change(peer, a, Attribute::MaxDestReadAtomic));
    const auto ask = [&peer](std::uint32_t n) {
        ScriptedPeer::Spec spec;
        spec.extensions.reth = peer.reth(8);
        peer.peer_delivers(Opcode::RcReadRequest, kReceivePsn + n, spec);
    };
    for (const char* round : {"first", "again"}) {
        SCOPED_TRACE(round);
        for (std::uint32_t i = 0; i < 8; ++i) ask(i);
        peer.run();
        for (std::uint32_t i = 0; i < 8; ++i)
            peer.expect_sent(Opcode::RcReadResponseOnly, kReceivePsn + i);
        peer.expect_silence();
    }
}

TEST(Sqd, FewerReadsThanBeforeAreAskedForAtOnce) {
    ScriptedPeer peer({.read_atomic_max = 4});
    QpAttributes a;
    a.read_atomic_max = 2;
    ASSERT_TRUE(change(peer, a, Attribute::MaxReadAtomic));
    for (std::uint64_t id = 1; id <= 4; ++id) peer.post(SendOp::Read, 8, id);
    peer.run();
    peer.expect_sent(Opcode::RcReadRequest, kSendPsn);
    peer.expect_sent(Opcode::RcReadRequest, kSendPsn + 1);
    peer.expect_silence();
}

TEST(Sqd, MoreReadsThanBeforeAreAskedForAtOnce) {
    ScriptedPeer peer({.read_atomic_max = 1});
    QpAttributes a;
    a.read_atomic_max = 3;
    ASSERT_TRUE(change(peer, a, Attribute::MaxReadAtomic));
    for (std::uint64_t id = 1; id <= 4; ++id) peer.post(SendOp::Read, 8, id);
    peer.run();
    for (std::uint32_t i = 0; i < 3; ++i) peer.expect_sent(Opcode::RcReadRequest, kSendPsn + i);
    peer.expect_silence();
}

}  // namespace
}  // namespace feroce::script
