// Acknowledgements that wait for what the program posts, of a peer that is reached by a ring: each
// is sent or left behind, whatever else is owed.
#include <algorithm>

#include "scripted_peer.hpp"

namespace feroce::script::left_behind_test {
namespace {

Psn asked(std::uint32_t n) {
    return kReceivePsn + n;
}

void deliver_write(ScriptedPeer& peer, std::uint32_t n) {
    peer.peer_delivers(Opcode::RcWriteOnly, asked(n),
                       {.extensions = {.reth = peer.reth(8)}, .payload_size = 8});
}

void deliver_read(ScriptedPeer& peer, std::uint32_t n, std::uint32_t packets) {
    peer.peer_delivers(Opcode::RcReadRequest, asked(n),
                       {.extensions = {.reth = peer.reth(packets * kMtu)}});
}

TEST(LeftBehind, OfAWriteWithAReadBehindItNothingWaits) {
    ScriptedPeer peer({.ring = true});
    deliver_write(peer, 0);
    deliver_read(peer, 1, 1);
    EXPECT_FALSE(peer.engine.leave_acks_behind()) << "the answer acknowledges the WRITE";
}

TEST(LeftBehind, StaysAsLongAsItIsNotSent) {
    constexpr std::uint32_t kMoreThanATurn = 100;
    ScriptedPeer peer({.ring = true});
    peer.port.ring_room = false;  // They go by UDP, as where a ring is full.
    deliver_read(peer, 0, kMoreThanATurn);
    while (peer.engine.has_work()) peer.run();
    peer.port.sent.clear();
    deliver_write(peer, kMoreThanATurn);
    EXPECT_TRUE(peer.engine.leave_acks_behind());
    EXPECT_EQ(peer.port.left_behind, 1);
    deliver_read(peer, 0, kMoreThanATurn);  // Once more. Its answers do not acknowledge the WRITE.
    const auto acknowledged = [&] {
        return std::any_of(
            peer.port.sent.begin(), peer.port.sent.end(),
            [](const SentPacket& sent) { return sent.packet.bth.opcode == Opcode::RcAck; });
    };
    peer.engine.run(peer.now);
    EXPECT_FALSE(acknowledged()) << "a turn of answers";
    EXPECT_EQ(peer.port.left_behind, 1);
    while (peer.engine.has_work()) peer.run();
    EXPECT_TRUE(acknowledged());
    EXPECT_EQ(peer.port.left_behind, 0);
}

}  // namespace
}  // namespace feroce::script::left_behind_test
