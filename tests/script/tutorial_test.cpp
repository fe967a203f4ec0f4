// The packet script of docs/tutorial.md: one engine, and a peer that the test plays by hand.
#include "scripted_peer.hpp"

namespace feroce::script {
namespace {

TEST(Tutorial, AWriteThatComesTwiceIsDoneOnce) {
    ScriptedPeer peer;
    ScriptedPeer::Spec write{.payload_size = 8, .fill = std::byte{0x11}};
    write.extensions.reth = peer.reth(8);

    peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn, write);
    peer.expect_ack(kReceivePsn);
    EXPECT_EQ(peer.memory[0], std::byte{0x11});

    // The acknowledgement got lost, so the peer sends the same packet again. By now the program
    // has put something else there, which must stay.
    peer.memory[0] = std::byte{0x22};
    peer.peer_sends(Opcode::RcWriteOnly, kReceivePsn, write);
    peer.expect_ack(kReceivePsn);
    EXPECT_EQ(peer.memory[0], std::byte{0x22});
    peer.expect_silence();
}

}  // namespace
}  // namespace feroce::script
