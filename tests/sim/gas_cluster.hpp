// A cluster of gas nodes in a simulation. Every access of a CPU to a shared word lets other
// programs run, so that what may interleave does, in another way for each seed.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/random.hpp"
#include "feroce/gas/node.hpp"
#include "sim/abi_world.hpp"
#include "sim/seeds.hpp"

namespace feroce::sim {

struct ClusterOptions {
    std::size_t nodes = 2;
    std::uint16_t threads = 1;
    bool trust_global_atomics = true;
    double yields = 0.3;  // How many of the accesses.
    Faults faults = {};
    Duration limit = std::chrono::seconds(600);
    std::uint64_t memory = 256 << 10;
    std::size_t memory_nodes = 64;  // The others only compute.
    Duration patience = std::chrono::seconds(60);
    Duration silence = std::chrono::seconds(4);
    gas::Lease lease = {};
    bool check_memory = false;
};

class GasCluster {
public:
    // What one thread of one node does. Thread 0 joins before and leaves after; the others run
    // between.
    using Program = std::function<void(gas::Node& node, std::size_t thread)>;

    GasCluster(std::uint64_t seed, const ClusterOptions& options);
    ~GasCluster();

    AbiWorld& world() { return world_; }
    Prng& random() { return random_; }
    // Runs all programs to their ends and gives the hash of the trace.
    std::uint64_t run(const Program& program);
    gas::NodeOptions options_of(std::size_t node) const;

private:
    void join_and_run(std::size_t node, const Program& program);

    ClusterOptions options_;
    std::uint64_t seed_;
    AbiWorld world_;
    Prng random_;
};

}  // namespace feroce::sim
