// Datagrams of a port that does not say which of our addresses they were sent to.
#include "scripted_peer.hpp"
#include "wire/icrc.hpp"

namespace feroce::script {
namespace {

using transport::DropReason;

constexpr Gid kOurOther = Gid::from_v4(0x7f00'0009);

class Destination : public ::testing::Test {
protected:
    // A WRITE of eight bytes, sealed for one of our addresses.
    void receive(Qpn to, const Gid& address, const Gid& from = kPeers) {
        std::vector<std::byte> bytes(wire::packet_size(Opcode::RcWriteOnly, 8), std::byte{0x5a});
        wire::Bth bth;
        bth.opcode = Opcode::RcWriteOnly;
        bth.destination = to;
        bth.psn = kReceivePsn;
        bth.ack_request = true;
        wire::Extensions extensions;
        extensions.reth = peer.reth(8);
        wire::emit_headers(bytes, bth, extensions);
        wire::seal({from, address, kPeerPort, wire::kRocePort}, 0, bytes);
        peer.engine.receive(peer.now, {bytes, from, Gid{}, kPeerPort, 0, 0, 64});
        peer.run();
    }

    ScriptedPeer peer{{.verify_icrc = true}};
};

TEST_F(Destination, AConnectedQueuePairKnowsItsOwn) {
    receive(peer.qp->qpn(), kOurs);
    peer.expect_ack(kReceivePsn);
    EXPECT_EQ(peer.memory[0], std::byte{0x5a});
    EXPECT_FALSE(peer.port.tells_destinations);
}

TEST_F(Destination, AnotherAddressIsNotTakenForIt) {
    receive(peer.qp->qpn(), kOurOther);
    peer.expect_silence();
    EXPECT_EQ(peer.engine.counters()[DropReason::BadIcrc], 1U);
    EXPECT_EQ(peer.memory[0], std::byte{0});
    EXPECT_FALSE(peer.port.tells_destinations);
}

// So that the next packet can be judged: whose it would have been, or what state it found.
TEST_F(Destination, AStrangersPacketMakesThePortTell) {
    receive(Qpn{peer.qp->qpn().raw ^ 1}, kOurs);
    EXPECT_EQ(peer.engine.counters()[DropReason::NoSuchQp], 1U);
    EXPECT_TRUE(peer.port.tells_destinations);
}

TEST_F(Destination, AnUnconnectedQueuePairDoesNotKnow) {
    transport::QpInit init;
    init.pd = peer.pd;
    init.send_cq = init.receive_cq = &peer.cq;
    receive((*peer.engine.create_qp(init))->qpn(), kOurs);
    EXPECT_TRUE(peer.port.tells_destinations);
    EXPECT_EQ(peer.engine.counters()[DropReason::BadIcrc], 0U);
}

TEST_F(Destination, APacketOfTheOtherFamilyWasNotSentThere) {
    Gid ipv6;
    ipv6.raw[0] = 0xfd;
    receive(peer.qp->qpn(), ipv6, ipv6);
    EXPECT_TRUE(peer.port.tells_destinations);
    EXPECT_EQ(peer.engine.counters()[DropReason::BadIcrc], 0U);
    EXPECT_EQ(peer.memory[0], std::byte{0});
}

TEST_F(Destination, DatagramsNeedIt) {
    transport::QpInit init;
    init.type = QpType::Ud;
    init.pd = peer.pd;
    init.send_cq = init.receive_cq = &peer.cq;
    ASSERT_TRUE(peer.engine.create_qp(init));
    EXPECT_TRUE(peer.port.tells_destinations);
}

}  // namespace
}  // namespace feroce::script
