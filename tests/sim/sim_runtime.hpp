// SimRuntime: the Runtime of a loop in a program on a simulated node. Make it in the program, so
// that it belongs to the node where that runs.
#pragma once

#include "base/random.hpp"
#include "feroce/runtime.hpp"
#include "sim/abi_world.hpp"

namespace feroce::sim {

class SimRuntime final : public rdma::Runtime {
public:
    explicit SimRuntime(std::uint64_t seed = 0);

    Instant now() override { return node_.machine().now(); }
    void wait(Instant until, std::span<const int> fds) override;
    void wake() override;
    void relax() override { pause(); }
    std::pmr::memory_resource& memory() override { return node_.memory(); }
    std::uint64_t random() override { return random_.next(); }
    // A program that is moved all the time uses what is kept for each.
    unsigned current_processor() override { return processor_++; }

private:
    AbiNode& node_;
    Prng random_;
    unsigned processor_ = 0;
    bool woken_ = false;
};

}  // namespace feroce::sim
