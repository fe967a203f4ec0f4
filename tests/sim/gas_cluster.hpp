// A cluster of gas nodes in a simulation. Every access of a CPU to a shared word lets other
// programs run, so that what may interleave does, in another way for each seed.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
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
    // For threads: returns when every thread of every node has called it as often, so that they
    // contend from their first step on, however long each took to join.
    void meet();
    // Runs all programs to their ends and gives the hash of the trace.
    std::uint64_t run(const Program& program);
    gas::NodeOptions options_of(std::size_t node) const;

private:
    void join_and_run(std::size_t node, const Program& program);

    ClusterOptions options_;
    std::uint64_t seed_;
    AbiWorld world_;
    Prng random_;
    std::size_t met_ = 0;  // Calls of meet().
};

// That one of sixty seeds shows a bug that the test has planted. It says which, since one that is
// found late is found by chance.
template <class Shows>
void expect_found(Shows shows) {
    constexpr std::uint64_t kSeeds = 60;
    std::uint64_t seed = 0;
    while (seed < kSeeds && !shows(seed)) ++seed;
    ASSERT_LT(seed, kSeeds) << "not found in so many seeds";
    testing::Test::RecordProperty("seed", std::to_string(seed));
    std::printf("found by seed %d\n", static_cast<int>(seed));
}

}  // namespace feroce::sim
