// Swarm: what one seed exercises. Each seed switches a random part of all operations, faults and
// sizes on: bugs hide behind combinations that a test with everything on never gets to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/connect.hpp"
#include "sim/link.hpp"
#include "transport/types.hpp"
#include "transport/work.hpp"

namespace feroce::sim {

struct ConnectionPlan {
    std::uint32_t a = 0;  // Nodes.
    std::uint32_t b = 1;
    // XrcInitiator: one at `a`, and an XRC target at `b`.
    transport::QpType type = transport::QpType::Rc;
    bool shared_receives = false;
    ConnectOptions options;

    bool reliable() const {
        return type == transport::QpType::Rc || type == transport::QpType::XrcInitiator;
    }
};

struct Swarm {
    std::uint64_t seed = 0;

    std::uint32_t nodes = 2;
    std::uint32_t shards = 1;
    bool ipv6 = false;
    bool exact_hints = true;
    bool far = false;    // Some of the memory is reached by slow copies only.
    bool rings = false;  // Nodes may send by memory, and wide packets.
    LinkConfig link;
    std::vector<ConnectionPlan> connections;

    std::uint32_t operations = 0;  // Bit per SendOp.
    std::uint32_t message_max = 4096;
    std::uint32_t depth = 4;     // Sends under way per endpoint.
    std::uint32_t receives = 4;  // Receives kept posted per endpoint or shared queue.
    double unsignaled = 0;
    double inlined = 0;
    bool many_pieces = false;  // Scatter-gather lists of more than one entry.
    bool one_cq = true;

    Faults faults;
    bool partitions = false;
    bool pauses = false;
    bool late_receives = false;
    bool deregistrations = false;
    bool destructions = false;
    bool drains = false;          // SQD, and back with other attributes or addresses.
    bool resets = false;          // A queue pair is used again after RESET.
    bool receive_losses = false;  // An XRC receive queue and its completion queue are destroyed.
    // Endpoints have completion and shared receive queues of their own, destroyed with them.
    bool own_queues = false;
    Duration chaos = std::chrono::milliseconds(50);
    std::uint32_t chaos_operations = 100;  // Per endpoint, at most.
    std::uint32_t heal_operations = 20;

    bool has(transport::SendOp op) const { return (operations >> static_cast<int>(op) & 1) != 0; }
    void enable(transport::SendOp op) { operations |= 1u << static_cast<int>(op); }

    // Whether a connection may lose its peer for longer than all its retries take. Where it may
    // not, running out of retries is a finding.
    bool retries_may_run_out(const ConnectionPlan& plan) const;
    bool keeps = false;  // Selective repeat: no seed says so, its caller does.
    // Of a node's engine: see device::Engine::Config.
    std::size_t held_bytes_max(std::uint32_t node) const;
    // A line's queue may hold more than all tries of a connection wait for: they run out before the
    // first answer, without any fault.
    bool queue_outlasts(const ConnectOptions& options) const;

    static Swarm draw(std::uint64_t seed);
};

std::string describe(const Swarm& swarm);  // One line.

}  // namespace feroce::sim
