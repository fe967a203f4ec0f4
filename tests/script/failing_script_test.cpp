// A script that fails names its own line, not one of the scripted peer.
#include <gtest/gtest-spi.h>

#include "scripted_peer.hpp"

namespace feroce::script {
namespace {

TEST(FailingScript, NamesItsLine) {
    ScriptedPeer peer;
    EXPECT_NONFATAL_FAILURE(peer.expect_sent(Opcode::RcAck, kReceivePsn),
                            "failing_script_test.cpp:");
    peer.post_receive(16, 1);
    peer.peer_sends(Opcode::RcSendOnly, kReceivePsn, {.payload_size = 16});
    EXPECT_NONFATAL_FAILURE(peer.expect_silence(), "failing_script_test.cpp:");
    EXPECT_NONFATAL_FAILURE(peer.expect_ack(kReceivePsn + 7), "failing_script_test.cpp:");
    EXPECT_NONFATAL_FAILURE(peer.expect_completion(2, WcStatus::Success),
                            "failing_script_test.cpp:");
}

}  // namespace
}  // namespace feroce::script
