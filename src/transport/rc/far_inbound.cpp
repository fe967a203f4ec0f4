#include "transport/rc/far_inbound.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace feroce::transport::rc {

void FarInbound::keep(const wire::Packet& packet, std::uint32_t packets) {
    Kept copy;
    const std::size_t headers = packet.extension.size();
    copy.size = headers + packet.payload.size();
    copy.bytes = std::make_unique_for_overwrite<std::byte[]>(copy.size);
    const ByteSpan bytes_of(copy.bytes.get(), copy.size);
    std::copy(packet.extension.begin(), packet.extension.end(), bytes_of.begin());
    std::copy(packet.payload.begin(), packet.payload.end(), bytes_of.subspan(headers).begin());
    copy.packet = packet;
    copy.packet.extension = bytes_of.first(headers);
    copy.packet.payload = bytes_of.subspan(headers);
    copy.packets = packets;
    const std::size_t cost = copy.cost();
    kept.push_back(std::move(copy));  // The views stay valid.
    bytes += cost;
}

FarInbound::Kept FarInbound::take_kept() {
    Kept out = std::move(kept.front());
    kept.pop_front();
    bytes -= out.cost();
    return out;
}

void FarInbound::drop_kept() {
    while (!kept.empty()) take_kept();
}

void FarInbound::pop_piece() {
    bytes -= pieces.front().cost();
    if (pieces.front().ends) --ends;
    pieces.pop_front();
}

void FarInbound::drop_piece() {
    bytes -= pieces.back().cost();
    if (pieces.back().waits()) --waiting;
    pieces.pop_back();
}

bool FarInbound::must_wait(const Piece& piece) const {
    // From the front: those that wait for one another mostly wait for the first. Pieces of one
    // message do not touch the same bytes, so only messages that have ended before it count.
    bool met = false;
    for (const Piece& one : pieces) {
        if (&one == &piece) break;
        met = met || (!one.landed() && one.meets(piece));
        if (met && one.ends) return true;
    }
    return false;
}

}  // namespace feroce::transport::rc
