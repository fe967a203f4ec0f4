// Counters under rxe's names count what rxe counts.
#include "scripted_peer.hpp"

namespace feroce::script::counters_test {
namespace {

using transport::Counter;

std::uint64_t count(const ScriptedPeer& peer, Counter counter) {
    return peer.engine.counters()[counter];
}

TEST(Counters, SendsCountWhenTheyAreCompletedAndOtherWorkDoesNot) {
    ScriptedPeer peer;
    peer.post(SendOp::Send, 8, 1);
    peer.post(SendOp::SendImmediate, 8, 2, false);
    peer.post(SendOp::Write, 8, 3);
    EXPECT_EQ(count(peer, Counter::RdmaSends), 0U);
    peer.peer_acks(kSendPsn + 2);
    peer.expect_completion(1, WcStatus::Success);
    peer.expect_completion(3, WcStatus::Success);
    EXPECT_EQ(count(peer, Counter::RdmaSends), 2U) << "the unsignaled one, too";
}

TEST(Counters, AFlushedSendCountsAsWithRxe) {
    ScriptedPeer peer;
    peer.post(SendOp::Send, 8, 1);
    ASSERT_TRUE(peer.modify(QpState::Err));
    peer.expect_completion(1, WcStatus::FlushError);
    EXPECT_EQ(count(peer, Counter::RdmaSends), 1U);
}

TEST(Counters, ReceivesCountWhenAMessageFillsThem) {
    ScriptedPeer peer;
    for (std::uint64_t i = 0; i < 3; ++i) peer.post_receive(64, i);
    ScriptedPeer::Spec spec;
    spec.payload_size = 8;
    peer.peer_sends(Opcode::RcSendOnly, kReceivePsn, spec);
    peer.expect_completion(0, WcStatus::Success);
    EXPECT_EQ(count(peer, Counter::RdmaReceives), 1U);
    spec.extensions.reth = peer.reth(8);
    peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn + 1, spec);
    EXPECT_EQ(count(peer, Counter::RdmaReceives), 1U) << "a WRITE fills none";
    ASSERT_TRUE(peer.modify(QpState::Err));
    peer.expect_completion(1, WcStatus::FlushError);
    EXPECT_EQ(count(peer, Counter::RdmaReceives), 1U) << "nor does a flush";
}

TEST(Counters, PacketsThatThePortCouldNotSendCount) {
    ScriptedPeer peer;
    peer.run();
    EXPECT_EQ(count(peer, Counter::SendError), 0U);
    peer.port.unsent = 3;
    peer.run();
    EXPECT_EQ(count(peer, Counter::SendError), 3U);
}

}  // namespace
}  // namespace feroce::script::counters_test
