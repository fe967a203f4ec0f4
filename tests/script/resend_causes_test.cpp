// Every packet sent again is counted under what made the sender do it, and bytes are counted as
// they are on the wire.
#include <map>
#include <string>

#include "scripted_peer.hpp"

namespace feroce::script::resend_causes_test {
namespace {

using namespace std::chrono_literals;
using transport::Counter;
using transport::Counters;

constexpr Duration kAckTimeout = 67'108'864ns;  // 4.096 us * 2^14.

// The causes that were counted, by name.
std::map<std::string, std::uint64_t> causes(const ScriptedPeer& peer) {
    std::map<std::string, std::uint64_t> out;
    std::uint64_t sum = 0;
    for (const Counter cause :
         {Counter::ResentByTimeout, Counter::ResentByProbe, Counter::ResentBySequence,
          Counter::ResentByRnr, Counter::ResentByResponse}) {
        const std::uint64_t count = peer.engine.counters()[cause];
        if (count > 0) out[transport::name(cause)] = count;
        sum += count;
    }
    EXPECT_EQ(sum, peer.engine.counters()[Counter::Retransmitted]);
    return out;
}

using Causes = std::map<std::string, std::uint64_t>;

TEST(ResendCauses, ATimeout) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 2 * kMtu, 1);
    peer.after(kAckTimeout);
    EXPECT_EQ(causes(peer), (Causes{{"resent_by_timeout", 2}}));
    EXPECT_EQ(peer.engine.counters()[Counter::AckTimeouts], 1U);
    peer.peer_acks(kSendPsn + 1);
    peer.expect_completion(1, WcStatus::Success);
}

TEST(ResendCauses, ASequenceNak) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 4 * kMtu, 1);
    peer.peer_naks(kSendPsn + 1, wire::NakCode::SequenceError);
    EXPECT_EQ(causes(peer), (Causes{{"resent_by_nak_seq", 3}}));
    // The cause of the second time is the timeout; one after a retry takes up to a fourth longer.
    peer.after(kAckTimeout * 5 / 4);
    EXPECT_EQ(causes(peer), (Causes{{"resent_by_nak_seq", 3}, {"resent_by_timeout", 3}}));
}

TEST(ResendCauses, AReceiverThatIsNotReady) {
    ScriptedPeer peer;
    peer.post(SendOp::Send, 8, 1);
    peer.peer_rnr(kSendPsn, 12);  // 0.64 ms.
    EXPECT_EQ(causes(peer), Causes{});
    peer.after(640us);
    EXPECT_EQ(causes(peer), (Causes{{"resent_by_rnr", 1}}));
}

TEST(ResendCauses, ALostResponse) {
    ScriptedPeer peer;
    peer.post(SendOp::Read, 2 * kMtu, 1);
    peer.peer_sends(Opcode::RcReadResponseLast, kSendPsn + 1, {.payload_size = kMtu});
    EXPECT_EQ(causes(peer), (Causes{{"resent_by_lost_response", 1}}));
    EXPECT_EQ(peer.engine.counters()[Counter::ImpliedNaks], 1U);
}

TEST(ResendCauses, AProbe) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, 8, 1);
    peer.after(10us);
    peer.peer_acks(kSendPsn);  // Round trips are known to be short now.
    peer.post(SendOp::Write, 3 * kMtu, 2);
    peer.after(3ms);
    EXPECT_EQ(causes(peer), (Causes{{"resent_by_probe", 1}}));
    peer.peer_acks(kSendPsn + 1);  // Of the probe alone: what followed it was lost.
    EXPECT_EQ(causes(peer), (Causes{{"resent_by_probe", 3}}));
    EXPECT_EQ(peer.engine.counters()[Counter::AckTimeouts], 0U);
}

TEST(CountedBytes, AreThoseOfPacketsOnTheWire) {
    ScriptedPeer peer;
    peer.post(SendOp::Write, kMtu + 8, 1);
    std::uint64_t sent = 0;
    for (const SentPacket& packet : peer.port.sent) sent += packet.bytes.size();
    EXPECT_EQ(peer.engine.counters()[Counter::SentBytes], sent);
    EXPECT_EQ(peer.engine.counters()[Counter::ReceivedBytes], 0U);
    peer.peer_acks(kSendPsn + 1);
    EXPECT_EQ(peer.engine.counters()[Counter::ReceivedBytes], wire::packet_size(Opcode::RcAck, 0));
}

TEST(CountedBytes, LeaveOutAPacketThatWasTakenBack) {
    ScriptedPeer peer;
    SendWr wr = peer.send_wr(SendOp::Write, 8, 1);
    const mem::Sge unknown{peer.address(), 8, LKey{0xdead'beef}};
    wr.sges = {&unknown, 1};
    ASSERT_TRUE(peer.engine.post_send(peer.now, *peer.qp, wr));
    peer.run();
    peer.expect_completion(1, WcStatus::LocalProtectionError);
    EXPECT_EQ(peer.engine.counters()[Counter::SentBytes], 0U);
}

}  // namespace
}  // namespace feroce::script::resend_causes_test
