// Flows of a capture, and which two are the directions of one connection. A datagram names both
// queue pairs, any other packet only the one that gets it. Which two belong together is learnt from
// answers there: an answer has the PSN of a request that went the other way shortly before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "base/gid.hpp"

namespace feroce::cli {

using PacketFlow =
    std::tuple<Gid, Gid, std::uint32_t>;  // Source, destination, queue pair that gets it.

class FlowPairs {
public:
    // Packets in the order of the capture.
    void request(const PacketFlow& flow, std::uint32_t psn);
    void answer(const PacketFlow& flow, std::uint32_t psn);
    void datagram(const PacketFlow& flow, std::uint32_t from_qpn);

    // For each flow that is known to answer another: that one.
    std::map<PacketFlow, PacketFlow> partners() const;

private:
    std::map<PacketFlow, std::uint32_t> requests_;  // The last PSN.
    std::map<PacketFlow, std::map<PacketFlow, std::size_t>> votes_;
};

}  // namespace feroce::cli
