// What a person would remark on the packets of a capture: sent again, missing before it, refused,
// there twice.
// Remembers where each flow is; packets are given in the order of the capture.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "base/gid.hpp"
#include "base/psn.hpp"
#include "cli/capture/twins.hpp"
#include "wire/packet.hpp"
#include "wire/pcapng.hpp"

namespace feroce::cli {

class Remarks {
public:
    static constexpr char kSentAgain[] = "sent again";

    // Empty if there is nothing to remark.
    std::string on(const wire::RoceDatagram& datagram, const wire::Packet& packet);

private:
    // Source, destination, receiving queue pair. Responses are not followed: their PSNs are those
    // of what they answer.
    using Flow =
        std::tuple<std::array<std::uint8_t, 16>, std::array<std::uint8_t, 16>, std::uint32_t>;
    struct Place {
        Psn next;
        bool certain = false;  // After a READ request the next PSN depends on a path MTU.
    };
    std::string on_request(const Flow& flow, const wire::Packet& packet);

    std::map<Flow, Place> places_;
    Twins twins_;
};

}  // namespace feroce::cli
