// SimPort: an engine's way into the simulated network. Does what a real port does with a run: seals
// it with the ids of a segmented send and puts the packets on the wire one by one.
#pragma once

#include <cstdint>
#include <span>

#include "device/port.hpp"
#include "sim/frame.hpp"
#include "sim/scheduler.hpp"
#include "sim/switch.hpp"
#include "sim/trace.hpp"

namespace feroce::sim {

class SimPort final : public device::Port {
public:
    // Outlive the port.
    struct Parts {
        Scheduler& scheduler;
        Trace& trace;
        FrameSink& uplink;
        Switch& groups;  // Multicast membership lives in the switch.
    };

    SimPort(const Parts& parts, const Gid& address, std::uint32_t node)
        : parts_(parts), address_(address), node_(node) {}

    void transmit(std::span<const transport::TransmitRun> runs) override;
    bool join_group(const Gid& group) override;
    void leave_group(const Gid& group) override;

    std::uint64_t packets_sent() const { return packets_sent_; }

private:
    void send_run(const transport::TransmitRun& run);

    Parts parts_;
    Gid address_;
    std::uint32_t node_;
    std::uint64_t packets_sent_ = 0;
};

}  // namespace feroce::sim
