// MachineHost: a simulated machine as one process on it sees it. Threads are fibers, the clock is
// the world's, randomness comes from the seed, and there is one process a machine, so nobody shares
// the ports of rdma_cm.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "host/host.hpp"
#include "sim/machine.hpp"

namespace feroce::sim {

// One slot of the machine's UDP port. Sends through the machine's uplink.
class MachinePort final : public host::HostPort {
public:
    explicit MachinePort(Machine& machine);
    ~MachinePort() override;

    void transmit(std::span<const transport::TransmitRun> runs) override { way_.transmit(runs); }
    bool join_group(const Gid& group) override { return way_.join_group(group); }
    void leave_group(const Gid& group) override { way_.leave_group(group); }

    SlotNumber slot() const override { return slot_; }
    bool poll(Instant now, device::Engine& engine) override;
    bool poll_all(Instant now, device::Engine& engine) override { return poll(now, engine); }
    void arm() override;
    void disarm(bool) override { armed_ = false; }
    bool wait(Instant until) override;
    void wake() override { bell_.ring(); }
    bool interfaces_changed() override { return std::exchange(changed_, false); }

    // Of the machine.
    void deliver(const FramePtr& frame);
    void on_interfaces_changed();

private:
    Machine& machine_;
    SimPort way_;
    SlotNumber slot_;
    Machine::Bell bell_;
    std::deque<FramePtr> socket_;
    bool armed_ = false;
    bool changed_ = false;
};

class MachineHost final : public host::Host {
public:
    explicit MachineHost(Machine& machine) : machine_(machine), random_(machine.random().next()) {}

    Instant now() override { return machine_.now(); }
    RandomSource& random() override { return random_; }
    host::Identity identity() override { return {}; }
    std::vector<host::Interface> interfaces() override;
    Result<std::unique_ptr<host::HostPort>> open_port() override;
    std::unique_ptr<host::Estate> open_estate(SlotNumber) override { return nullptr; }
    Result<std::unique_ptr<host::Rendezvous>> open_rendezvous(SlotNumber slot,
                                                              int requests_fd) override;
    Result<Gid> source_for(const Gid& destination, std::uint32_t scope) override;
    Result<std::unique_ptr<host::Task>> spawn(std::function<void()> body) override;
    void abandon() override {}  // Nobody forks here.

private:
    Machine& machine_;
    Prng random_;
};

}  // namespace feroce::sim
