// How READs are asked for: in pieces, each by a request of its own (ADR 9), and where requests are
// lost, several times (ADR 34).
#include <algorithm>

#include "transport/rc/recovery.hpp"
#include "transport/rc/requester.hpp"

namespace feroce::transport::rc {

namespace {

// A READ is asked for in pieces, so that the window bounds its responses, which nobody acknowledges
// (ADR 0009). The fewer may be outstanding, the larger they are.
std::uint32_t read_piece_bytes(std::uint32_t outstanding_max) {
    return std::clamp(256 * 1024 / std::max(outstanding_max, 1U), 16U * 1024, 32U * 1024);
}

// Answers come at once: not more than a short queue has room for.
constexpr std::uint32_t kReadPieceFarMax = 256 * 1024;
constexpr std::uint32_t kReadPiecePacketsMax = 64;

}  // namespace

// Of a READ that begins now, of so many. Where the path is long, at least what lets all that may be
// outstanding fill the window together, in pieces of one size.
std::uint32_t Requester::read_piece_packets(std::uint32_t packets) const {
    const std::uint32_t most = std::max<std::uint32_t>(qp_.attributes().read_atomic_max, 1);
    const std::uint32_t path_mtu = qp_.attributes().path_mtu;
    const std::uint32_t bytes = read_piece_bytes(most);
    const SendWindow& window = *qp_.window();
    const std::uint32_t share =
        std::min({window.size() / most, kReadPieceFarMax, (kReadPiecePacketsMax - 1) * path_mtu});
    if (!window.is_far() || share <= bytes) return bytes / path_mtu;
    const std::uint32_t pieces = std::max(packets / (share / path_mtu + 1), 1U);
    return std::min((packets + pieces - 1) / pieces, kReadPiecePacketsMax);
}

bool Requester::send_read(Instant now, SendWqe& wqe) {
    const std::uint32_t mtu = qp_.attributes().path_mtu;
    // Pieces end at fixed places. A resent piece may begin late, where responses are missing, but
    // one that reached past its old end would be neither new nor a duplicate to the peer.
    const std::uint32_t to_piece_end = wqe.operand - position_.packet % wqe.operand;
    std::uint32_t packets = std::min(to_piece_end, wqe.packets - position_.packet);
    if (probe_.sending && has_board_)
        packets = due_answers(wqe, wqe.first_packet + position_.packet);
    const std::uint64_t offset = std::uint64_t{position_.packet} * mtu;
    const std::uint64_t length =
        std::min<std::uint64_t>(std::uint64_t{packets} * mtu, wqe.length - offset);
    PacketSpec spec;
    spec.opcode = wire::opcode_of(service_, wire::Opcode::RcReadRequest);
    spec.ack_request = true;
    spec.extensions.reth = {wqe.remote_address + offset, wqe.rkey,
                            static_cast<std::uint32_t>(length)};
    const bool sent = transmit(now, wqe, spec, packets);
    if (!sent || !hears_lists()) return sent;
    spec.ack_request = false;  // So its peer knows it for a copy.
    for (int left = qp_.recovery()->copies_of_next(); left > 0; --left) append_packet(qp_, spec);
    return sent;
}

}  // namespace feroce::transport::rc
