#include "cli/remarks.hpp"

#include <fmt/format.h>

#include "wire/print.hpp"

namespace feroce::cli {
namespace {

std::string on_answer(const wire::Packet& packet) {
    if (!packet.info->has(wire::Header::Aeth)) return {};
    const wire::Syndrome syndrome = packet.aeth().syndrome;
    switch (syndrome.kind()) {
        case wire::Syndrome::Kind::Rnr:
            return fmt::format("no receive is posted for PSN {}: the sender must wait",
                               packet.bth.psn.raw());
        case wire::Syndrome::Kind::Nak:
            return syndrome.nak_code() == wire::NakCode::SequenceError
                       ? fmt::format("PSN {} is missing: everything from there is sent again",
                                     packet.bth.psn.raw())
                       : fmt::format("refused at PSN {}: {}, the connection ends",
                                     packet.bth.psn.raw(), wire::to_string(syndrome));
        default:
            return {};
    }
}

}  // namespace

std::string Remarks::on_request(const Flow& flow, const wire::Packet& packet) {
    const bool reads = packet.info->verb == wire::Verb::ReadRequest;
    const Psn psn = packet.bth.psn;
    const auto [at, is_new] = places_.try_emplace(flow);
    Place& place = at->second;
    const std::int32_t ahead = is_new ? 0 : distance(place.next, psn);
    if (is_new || ahead >= 0) {
        const bool gap = ahead > 0 && place.certain;
        const Psn expected = place.next;
        place = {psn + 1, !reads};
        if (!gap) return {};
        return fmt::format("{} packet{} from PSN {} on not in this capture", ahead,
                           ahead == 1 ? "" : "s", expected.raw());
    }
    return kSentAgain;
}

std::string Remarks::on(const wire::RoceDatagram& datagram, const wire::Packet& packet) {
    if (twins_.is_second_sight(datagram)) return "the same packet, as it is received";
    const wire::Service service = packet.info->service;
    if (service != wire::Service::Rc && service != wire::Service::Uc &&
        service != wire::Service::Xrc)
        return {};
    if (wire::is_answer(packet.info->verb)) return on_answer(packet);
    return on_request(
        {datagram.address.source.raw, datagram.address.destination.raw, packet.bth.destination.raw},
        packet);
}

}  // namespace feroce::cli
