// Frame: one datagram on its way, with the IP fields a receiver sees. Shared, never changed: a link
// that corrupts or marks makes a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/gid.hpp"
#include "wire/icrc.hpp"

namespace feroce::sim {

struct Frame {
    wire::DatagramAddress address;
    std::uint16_t ipv4_id = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 64;
    std::vector<std::byte> bytes;  // BTH to ICRC.
    bool sealed = true;            // Else by memory, which does not change a packet.
    std::uint32_t packets = 1;     // That it stands for.
};

using FramePtr = std::shared_ptr<const Frame>;

// Whatever takes frames: a link, a switch, a node.
class FrameSink {
public:
    virtual ~FrameSink() = default;
    virtual void deliver(const FramePtr& frame) = 0;
};

}  // namespace feroce::sim
