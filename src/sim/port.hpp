// SimPort: an engine's way into the simulated network. Does what a real port does with a run: seals
// it with the ids of a segmented send and puts the packets on the wire one by one. With rings, a
// packet may be built in the port's memory, unsealed and as large as a ring takes; it meets the
// faults of the network all the same, which is worse than any ring. It is read when it arrives.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "base/random.hpp"
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
    // From now on a ring has room whenever the draw says so.
    void use_rings(Prng& random) { rings_ = &random; }

    void transmit(std::span<const transport::TransmitRun> runs) override;
    bool join_group(const Gid& group) override;
    void leave_group(const Gid& group) override;
    bool goes_by_ring(const transport::Path&, SlotNumber) const override {
        return rings_ != nullptr;
    }
    bool has_room(const transport::Path& path, SlotNumber slot, std::size_t size) override;
    ByteSpan place(const transport::Path& path, SlotNumber slot, std::size_t size,
                   std::uint32_t packets) override;
    void take_back() override { placed_.reset(); }
    // What the network still has, to whatever slot.
    std::optional<Unread> unread(SlotNumber) override;

    std::uint64_t packets_sent() const { return packets_sent_; }

private:
    static wire::DatagramAddress address_of(const transport::Path& path);
    void send_run(const transport::TransmitRun& run);
    void send_placed();
    void send(const FramePtr& frame);

    Parts parts_;
    Gid address_;
    std::uint32_t node_;
    std::uint64_t packets_sent_ = 0;
    Prng* rings_ = nullptr;
    std::shared_ptr<Frame> placed_;
    std::deque<std::weak_ptr<const Frame>> sent_placed_;
};

}  // namespace feroce::sim
