// Writes a capture of packets that the engine itself emits, one or more of every opcode it can
// send, for tshark_check.py to have dissected by somebody else's code.
#include <cstdio>
#include <vector>

#include "script/scripted_peer.hpp"
#include "wire/pcapng.hpp"

namespace feroce::script {
namespace {

using wire::opcode_of;
using wire::Service;

class Capture {
public:
    explicit Capture(std::FILE* file)
        : writer_(wire::PcapngWriter::file_sink(file), wire::LinkType::Ethernet) {}

    // Everything the engine has sent so far, sealed as a port would.
    void take(ScriptedPeer& peer) {
        for (; !peer.port.sent.empty(); peer.port.sent.pop_front()) {
            std::vector<std::byte>& bytes = peer.port.sent.front().bytes;
            const wire::DatagramAddress address{kOurs, kPeers, 50'000};
            wire::seal(address, 0, bytes);
            writer_.write_datagram(std::chrono::milliseconds(++count_), {address, 0, 0, bytes});
        }
    }

private:
    wire::PcapngWriter writer_;
    std::int64_t count_ = 0;
};

// Requests: each operation as one packet and as three.
void send_requests(Capture& capture, QpType type, std::initializer_list<SendOp> operations) {
    for (const SendOp op : operations) {
        for (const std::uint32_t length : {8U, 2 * kMtu + 8}) {
            const bool word = op == SendOp::CompareSwap || op == SendOp::FetchAdd;
            const bool single = word || op == SendOp::Read || type == QpType::Ud;
            if (single && length > 8) continue;
            ScriptedPeer peer({.type = type});
            SendWr wr = peer.send_wr(op, length, 1);
            wr.path = {kOurs, kPeers, 0, 64, 0};
            wr.destination_qpn = kPeerQpn;
            wr.qkey = kQkey;
            wr.remote_srq = SrqNumber{0x4321};
            EXPECT_TRUE(peer.engine.post_send(peer.now, *peer.qp, wr));
            peer.run();
            capture.take(peer);
        }
    }
}

// Responses: what a peer's requests bring out of the engine.
void send_responses(Capture& capture, QpType type, Service service) {
    ScriptedPeer peer({.type = type});
    const mem::Sge sge{peer.address(), 64, peer.keys.lkey};
    EXPECT_TRUE(peer.srq.post({1, {&sge, 1}}));
    ScriptedPeer::Spec spec;
    spec.extensions.xrceth.srq = peer.srq_number;
    spec.extensions.reth = peer.reth(8);
    spec.extensions.atomic = {peer.address(), peer.keys.rkey, 1, 0};
    peer.peer_sends(opcode_of(service, Opcode::RcReadRequest), kReceivePsn, spec);
    peer.peer_sends(opcode_of(service, Opcode::RcFetchAdd), kReceivePsn + 1, spec);
    spec.extensions.reth = peer.reth(2 * kMtu + 8);
    peer.peer_sends(opcode_of(service, Opcode::RcReadRequest), kReceivePsn + 2, spec);
    spec.extensions.reth = peer.reth(8);
    spec.payload_size = 8;
    peer.peer_sends(opcode_of(service, Opcode::RcWriteOnly), kReceivePsn + 5, spec);
    peer.peer_sends(opcode_of(service, Opcode::RcSendLast), kReceivePsn + 6, spec);  // A NAK.
    capture.take(peer);
}

// A packet marked by the network brings out a congestion notification.
void send_congestion_notice(Capture& capture) {
    ScriptedPeer peer;
    std::vector<std::byte> bytes(wire::packet_size(Opcode::RcWriteOnly, 0));
    wire::Bth bth;
    bth.opcode = Opcode::RcWriteOnly;
    bth.destination = peer.qp->qpn();
    bth.psn = kReceivePsn;
    wire::emit_headers(bytes, bth, {});
    peer.engine.receive(peer.now, {bytes, kPeers, kOurs, kPeerPort, 0, 3, 64});
    peer.run();
    capture.take(peer);
}

void write_all(Capture& capture) {
    const std::initializer_list<SendOp> datagram{SendOp::Send, SendOp::SendImmediate};
    const std::initializer_list<SendOp> unreliable{SendOp::Send, SendOp::SendImmediate,
                                                   SendOp::Write, SendOp::WriteImmediate};
    const std::initializer_list<SendOp> reliable{
        SendOp::Send,           SendOp::SendImmediate, SendOp::SendInvalidate, SendOp::Write,
        SendOp::WriteImmediate, SendOp::Read,          SendOp::CompareSwap,    SendOp::FetchAdd};
    send_requests(capture, QpType::Ud, datagram);
    send_requests(capture, QpType::Uc, unreliable);
    send_requests(capture, QpType::Rc, reliable);
    send_requests(capture, QpType::XrcInitiator, reliable);
    send_responses(capture, QpType::Rc, Service::Rc);
    send_responses(capture, QpType::XrcTarget, Service::Xrc);
    send_congestion_notice(capture);
}

}  // namespace
}  // namespace feroce::script

int main(int argc, char** argv) {
    std::FILE* file = argc == 2 ? std::fopen(argv[1], "wb") : nullptr;
    if (file == nullptr) {
        std::fprintf(stderr, "usage: every_opcode FILE.pcapng\n");
        return 2;
    }
    feroce::script::Capture capture(file);
    feroce::script::write_all(capture);
    const bool ok = std::fclose(file) == 0 && !testing::Test::HasFailure();
    return ok ? 0 : 1;
}
