// Calls of the engine that are refused, and what the engine is told by its port.
#include <cerrno>
#include <utility>

#include "scripted_peer.hpp"

namespace feroce::script::engine_calls_test {
namespace {

using namespace std::chrono_literals;
using transport::AsyncEventType;
using transport::Counter;
using transport::DropReason;
using transport::Notice;
using transport::NoticeKind;

const Notice* find_notice(const ScriptedPeer& peer, NoticeKind kind) {
    for (const Notice& notice : peer.engine.reasons().notices.all())
        if (notice.kind == kind) return &notice;
    return nullptr;
}

transport::QpInit init_of(ScriptedPeer& peer, QpType type) {
    transport::QpInit init;
    init.type = type;
    init.pd = peer.pd;
    init.send_cq = init.receive_cq = &peer.cq;
    init.datagram_mtu = kMtu;
    return init;
}

AttributeMask required(QpType type, QpState from, QpState to) {
    AttributeMask given = transport::transition(type, from, to).required;
    given.raw |= static_cast<std::uint32_t>(Attribute::State);
    return given;
}

TEST(EngineCalls, AValueThatNothingCanMeanIsRefusedAndNothingChanges) {
    struct Case {
        const char* name;
        QpState to;  // From the state before it.
        void (*spoil)(QpAttributes&);
    };
    for (const Case& c : std::initializer_list<Case>{
             {"P_Key", QpState::Init, [](QpAttributes& a) { a.pkey_index = 1; }},
             {"port", QpState::Init, [](QpAttributes& a) { a.port = 2; }},
             {"small MTU", QpState::Rtr, [](QpAttributes& a) { a.path_mtu = 128; }},
             {"large MTU", QpState::Rtr, [](QpAttributes& a) { a.path_mtu = 8192; }},
             {"odd MTU", QpState::Rtr, [](QpAttributes& a) { a.path_mtu = 1500; }},
             {"RNR timer", QpState::Rtr, [](QpAttributes& a) { a.min_rnr_timer = 32; }},
             {"address", QpState::Rtr, [](QpAttributes& a) { a.address.global = false; }},
             {"timeout", QpState::Rts, [](QpAttributes& a) { a.timeout = 32; }}}) {
        SCOPED_TRACE(c.name);
        ScriptedPeer peer;
        const QpAttributes good = peer.qp->attributes();
        ASSERT_TRUE(peer.modify(QpState::Reset));
        for (const QpState to : {QpState::Init, QpState::Rtr, QpState::Rts}) {
            const QpState from = peer.qp->state();
            QpAttributes a = good;
            a.state = to;
            if (to == c.to) {
                QpAttributes bad = a;
                c.spoil(bad);
                const AttributeMask given = required(QpType::Rc, from, to);
                const Result<void> refused = peer.engine.modify_qp(peer.now, *peer.qp, bad, given);
                ASSERT_FALSE(refused);
                EXPECT_EQ(refused.error().code, EINVAL);
                EXPECT_EQ(static_cast<int>(peer.qp->state()), static_cast<int>(from));
                EXPECT_STRNE(refused.error().why, "");
            }
            ASSERT_TRUE(
                peer.engine.modify_qp(peer.now, *peer.qp, a, required(QpType::Rc, from, to)));
        }
    }
}

TEST(EngineCalls, AWrongIdeaOfTheStateIsRefused) {
    ScriptedPeer peer;
    QpAttributes a = peer.qp->attributes();
    a.state = QpState::Rts;
    a.current_state = QpState::Sqd;
    const AttributeMask given = mask({Attribute::State, Attribute::CurrentState});
    const Result<void> refused = peer.engine.modify_qp(peer.now, *peer.qp, a, given);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EINVAL);
    EXPECT_STRNE(refused.error().why, "") << "a program whose modify fails is told why";
    a.current_state = QpState::Rts;
    EXPECT_TRUE(peer.engine.modify_qp(peer.now, *peer.qp, a, given));
}

// What was posted is gone without a completion, and the queue pair begins as a new one.
TEST(EngineCalls, AQueuePairThatWasResetBeginsAgain) {
    ScriptedPeer peer;
    const QpAttributes good = peer.qp->attributes();
    peer.post_receive(64, 1);
    peer.post(SendOp::Write, 8, 2);
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    ASSERT_TRUE(peer.modify(QpState::Reset));
    peer.after(1s);
    peer.expect_silence();
    peer.expect_no_completion();
    EXPECT_EQ(peer.engine.next_wakeup(), kNever);
    for (const QpState to : {QpState::Init, QpState::Rtr, QpState::Rts}) {
        QpAttributes a = good;
        a.state = to;
        ASSERT_TRUE(peer.engine.modify_qp(peer.now, *peer.qp, a,
                                          required(QpType::Rc, peer.qp->state(), to)));
    }
    peer.post(SendOp::Write, 8, 3);
    peer.expect_sent(Opcode::RcWriteOnly, kSendPsn);
    peer.peer_acks(kSendPsn);
    peer.expect_completion(3, WcStatus::Success);
    peer.expect_no_completion();
}

TEST(EngineCalls, ThereIsOneQueuePairForGeneralServices) {
    ScriptedPeer peer;
    const auto first = peer.engine.create_gsi_qp(init_of(peer, QpType::Ud));
    ASSERT_TRUE(first);
    EXPECT_EQ((*first)->qpn(), kGeneralServicesQpn);
    EXPECT_EQ(peer.engine.create_gsi_qp(init_of(peer, QpType::Ud)).error().code, EBUSY);
    peer.engine.destroy_qp(**first);
    EXPECT_TRUE(peer.engine.create_gsi_qp(init_of(peer, QpType::Ud)));
}

TEST(EngineCalls, AQueuePairMayGoWhileItsTurnIsDue) {
    ScriptedPeer peer;
    QueuePair* const other = *peer.engine.create_qp(init_of(peer, QpType::Rc));
    ASSERT_TRUE(peer.engine.post_send(peer.now, *peer.qp, peer.send_wr(SendOp::Write, 8, 1)));
    ASSERT_TRUE(peer.engine.has_work());
    peer.engine.destroy_qp(*std::exchange(peer.qp, other));
    EXPECT_FALSE(peer.engine.has_work());
    peer.run();
    peer.expect_silence();
    peer.expect_no_completion();
}

TEST(EngineCalls, ThePeerIsAnnouncedToAProgramInRtr) {
    ScriptedPeer peer;
    const QpAttributes good = peer.qp->attributes();
    ASSERT_TRUE(peer.modify(QpState::Reset));
    for (const QpState to : {QpState::Init, QpState::Rtr}) {
        QpAttributes a = good;
        a.state = to;
        ASSERT_TRUE(peer.engine.modify_qp(peer.now, *peer.qp, a,
                                          required(QpType::Rc, peer.qp->state(), to)));
    }
    peer.events.events.clear();
    ScriptedPeer::Spec spec{.payload_size = 8};
    spec.extensions.reth = peer.reth(8);
    for (const std::uint32_t n : {0U, 1U}) {
        peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn + n, spec);
        peer.expect_ack(kReceivePsn + n);
    }
    ASSERT_EQ(peer.events.events.size(), 1U) << "once";
    EXPECT_EQ(peer.events.events[0], AsyncEventType::CommunicationEstablished);
}

TEST(EngineCalls, APacketForAnotherShardIsHandedOver) {
    ScriptedPeer peer;
    std::vector<std::byte> bytes(wire::packet_size(Opcode::RcSendOnly, 8));
    wire::Bth bth;
    bth.opcode = Opcode::RcSendOnly;
    bth.destination = Qpn{peer.qp->qpn().raw ^ 1U << kQpnLowBits};
    wire::emit_headers(bytes, bth, {});
    // Even where the port does not know which of our addresses it came to.
    for (const Gid& to : {kOurs, Gid{}}) {
        peer.port.hands_over = true;
        const auto counters = [&] {
            return std::pair(peer.engine.counters()[Counter::HandedOver],
                             peer.engine.counters()[DropReason::NoSuchQp]);
        };
        const auto before = counters();
        peer.engine.receive(peer.now, {bytes, kPeers, to, kPeerPort, 0, 0, 64});
        EXPECT_EQ(counters(), std::pair(before.first + 1, before.second));
        peer.port.hands_over = false;
        peer.engine.receive(peer.now, {bytes, kPeers, to, kPeerPort, 0, 0, 64});
        EXPECT_EQ(counters(), std::pair(before.first + 1, before.second + 1));
    }
    // One for a number of this shard is nobody else's.
    peer.port.hands_over = true;
    bth.destination = Qpn{peer.qp->qpn().raw ^ 1U};
    wire::emit_headers(bytes, bth, {});
    peer.engine.receive(peer.now, {bytes, kPeers, kOurs, kPeerPort, 0, 0, 64});
    EXPECT_EQ(peer.engine.counters()[Counter::HandedOver], 2U);
}

// Announcing changes nothing, whatever the bytes are.
TEST(EngineCalls, AnAnnouncedPacketIsNotYetReceived) {
    ScriptedPeer peer;
    std::vector<std::byte> bytes(wire::packet_size(Opcode::RcSendOnly, 8));
    wire::Bth bth;
    bth.opcode = Opcode::RcSendOnly;
    for (const Qpn to : {peer.qp->qpn(), peer.qp->qpn(), Qpn{peer.qp->qpn().raw ^ 1U}}) {
        bth.destination = to;
        wire::emit_headers(bytes, bth, {});
        peer.engine.expect(bytes);
    }
    peer.engine.expect(ByteView(bytes).first(wire::Bth::kSize - 1));
    peer.engine.expect({});
    peer.run();
    peer.expect_silence();
    EXPECT_EQ(peer.engine.counters()[Counter::ReceivedPackets], 0U);
}

TEST(EngineCalls, AKernelThatRefusesPacketsIsNoticed) {
    ScriptedPeer peer;
    peer.engine.observe(*peer.qp);
    EXPECT_EQ(find_notice(peer, NoticeKind::SendRefused), nullptr);
    peer.port.refusal = ENETUNREACH;
    peer.engine.observe(*peer.qp);
    const Notice* notice = find_notice(peer, NoticeKind::SendRefused);
    ASSERT_NE(notice, nullptr);
    EXPECT_EQ(notice->error, ENETUNREACH);
    EXPECT_EQ(notice->source, kOurs);
    EXPECT_EQ(notice->destination, kPeers);
}

TEST(EngineCalls, AWindowFollowsARingThatComesAndGoes) {
    ScriptedPeer peer;
    EXPECT_FALSE(peer.qp->window()->is_by_ring());
    for (const bool by_ring : {true, false}) {
        peer.port.has_ring = by_ring;
        peer.run();
        EXPECT_NE(peer.qp->window()->is_by_ring(), by_ring) << "nobody said so yet";
        ++peer.port.changes;
        peer.run();
        EXPECT_EQ(peer.qp->window()->is_by_ring(), by_ring);
    }
}

// A caller may put off acknowledgements, and nothing else.
TEST(EngineCalls, OnlyAcknowledgementsMayWait) {
    ScriptedPeer peer;
    EXPECT_FALSE(peer.engine.owes_only_acks(peer.now)) << "nothing is owed";
    ScriptedPeer::Spec spec{.payload_size = 8};
    spec.extensions.reth = peer.reth(8);
    peer.peer_delivers(Opcode::RcWriteOnly, kReceivePsn, spec);
    EXPECT_TRUE(peer.engine.owes_only_acks(peer.now));
    ScriptedPeer::Spec read;
    read.extensions.reth = peer.reth(8);
    peer.peer_delivers(Opcode::RcReadRequest, kReceivePsn + 1, read);
    EXPECT_FALSE(peer.engine.owes_only_acks(peer.now)) << "a READ waits for its answer";
    peer.run();
    peer.peer_delivers(Opcode::RcWriteOnly, kReceivePsn + 2, spec);
    EXPECT_TRUE(peer.engine.owes_only_acks(peer.now));
    ASSERT_TRUE(peer.engine.post_send(peer.now, *peer.qp, peer.send_wr(SendOp::Write, 8, 1)));
    EXPECT_FALSE(peer.engine.owes_only_acks(peer.now)) << "a request is to be sent";
    peer.run();
    EXPECT_FALSE(peer.engine.owes_only_acks(peer.now));
}

TEST(EngineCalls, ADatagramQueuePairOwesNothing) {
    ScriptedPeer peer({.type = QpType::Ud});
    SendWr wr = peer.send_wr(SendOp::Send, 8, 1);
    wr.destination_qpn = kPeerQpn;
    wr.qkey = kQkey;
    wr.path = {kOurs, kPeers, 0, 64, 0};
    ASSERT_TRUE(peer.engine.post_send(peer.now, *peer.qp, wr));
    EXPECT_FALSE(peer.engine.owes_only_acks(peer.now));
    const Psn before = peer.qp->machine().progress().next;
    peer.run();
    peer.expect_sent(Opcode::UdSendOnly, before);
    peer.expect_completion(1, WcStatus::Success);
    EXPECT_EQ(peer.qp->machine().progress().next, before + 1);
    EXPECT_EQ(peer.engine.next_wakeup(), kNever) << "nobody answers a datagram";
}

// An XRC target's completions go to the queue of a shared receive queue, which may go first.
TEST(EngineCalls, ACompletionQueueThatGoesTakesAlongWhatWaitsForIt) {
    for (const bool goes : {false, true}) {
        ScriptedPeer peer({.type = QpType::XrcTarget});
        const mem::Sge sge{peer.address(), 64, peer.keys.lkey};
        ASSERT_TRUE(peer.srq.post({7, {&sge, 1}}));
        ScriptedPeer::Spec spec{.payload_size = 8};
        spec.extensions.xrceth.srq = peer.srq_number;
        peer.peer_delivers(Opcode::XrcSendOnly, kReceivePsn, spec);
        EXPECT_TRUE(peer.engine.holds_completions());
        if (goes) peer.engine.forget(peer.cq);
        EXPECT_EQ(peer.engine.holds_completions(), !goes);
        peer.now += 1us;
        peer.run();
        EXPECT_EQ(peer.engine.last_run(), peer.now);
        peer.expect_sent(Opcode::XrcAck, kReceivePsn);
        if (!goes) peer.expect_completion(7, WcStatus::Success);
        peer.expect_no_completion();
    }
}

// One damaged packet is chance; when all are, something on the way rewrites them.
TEST(EngineCalls, ASourceAllOfWhosePacketsAreDamagedIsNamed) {
    ScriptedPeer peer({.verify_icrc = true});
    for (const int count : {1, 2, 3, 4}) {
        EXPECT_EQ(peer.engine.mangled_source(), std::nullopt) << count;
        peer.peer_sends(Opcode::RcSendOnly, kReceivePsn, {.payload_size = 8});
    }
    EXPECT_EQ(peer.engine.mangled_source(), kPeers);
    EXPECT_EQ(peer.engine.counters()[DropReason::BadIcrc] +
                  peer.engine.counters()[DropReason::UnsolvableId],
              4U);
    peer.expect_silence();
}

}  // namespace
}  // namespace feroce::script::engine_calls_test
