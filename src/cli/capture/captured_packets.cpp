#include "cli/capture/captured_packets.hpp"

namespace feroce::cli {

std::optional<CapturedPacket> CapturedPackets::next() {
    while (const auto frame = file_.next()) {
        const auto datagram = wire::find_datagram(*frame);
        if (!datagram) continue;
        CapturedPacket out{.since_first = {}, .datagram = *datagram, .packet = {}};
        if (wire::parse_packet(datagram->udp_payload, out.packet) != wire::ParseError::None ||
            twins_.is_second_sight(*datagram))
            continue;
        if (!first_) first_ = frame->since_epoch;
        out.since_first = frame->since_epoch - *first_;
        return out;
    }
    return std::nullopt;
}

}  // namespace feroce::cli
