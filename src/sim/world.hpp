// World: nodes on one switch, with a clock, a source of randomness and a trace. Same seed and same
// calls, same run. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/random.hpp"
#include "sim/link.hpp"
#include "sim/machine.hpp"
#include "sim/node.hpp"
#include "sim/scheduler.hpp"
#include "sim/switch.hpp"
#include "sim/trace.hpp"

namespace feroce::sim {

class World {
public:
    explicit World(std::uint64_t seed);

    // `up` leads to the switch, `down` from it.
    Node& add_node(const NodeConfig& config, const LinkConfig& up, const LinkConfig& down);
    Machine& add_machine(const MachineConfig& config, const LinkConfig& up, const LinkConfig& down);
    // A further interface of a machine, with a cable of its own to the switch; rail 0 is the first.
    // Equal rails of two machines are on one network.
    void add_rail(std::size_t index, const LinkConfig& up, const LinkConfig& down);
    // Of a machine's rail; a node has two addresses on its one cable, 0 and 1.
    Gid address_of(std::size_t index, std::size_t rail) const;
    void use_ipv6(bool yes) { ipv6_ = yes; }  // For nodes added from now on.

    Scheduler& scheduler() { return scheduler_; }
    Instant now() const { return scheduler_.now(); }
    Trace& trace() { return trace_; }
    Prng& random() { return random_; }
    std::size_t size() const { return places_.size(); }
    Node& node(std::size_t index) { return *places_[index].node; }
    Machine& machine(std::size_t index) { return *places_[index].machine; }
    Link& uplink(std::size_t index, std::size_t rail = 0) {
        return rail == 0 ? *places_[index].up : *places_[index].rails[rail - 1].up;
    }
    Link& downlink(std::size_t index, std::size_t rail = 0) {
        return rail == 0 ? *places_[index].down : *places_[index].rails[rail - 1].down;
    }

    void set_faults(const Faults& faults);  // On all uplinks: each frame meets them once.
    void heal();                            // No faults, no partitions, nobody paused.

private:
    struct Rail {
        std::unique_ptr<Link> up;
        std::unique_ptr<Link> down;
    };
    struct Place {
        std::unique_ptr<Link> up;
        std::vector<Rail> rails;           // Beyond the first.
        std::unique_ptr<Node> node;        // Either,
        std::unique_ptr<Machine> machine;  // or.
        std::unique_ptr<Link> down;
    };

    Place& add_place(const LinkConfig& up);
    void plug_in(Place& place, const Gid& address, FrameSink& who, const LinkConfig& down);

    Scheduler scheduler_;
    Trace trace_;
    Prng random_;
    Switch switch_;
    bool ipv6_ = false;
    std::vector<Place> places_;
};

}  // namespace feroce::sim
