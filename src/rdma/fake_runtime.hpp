// A Runtime for tests of loops without a network: time goes on only where a loop waits or relaxes.
#pragma once

#include <algorithm>
#include <utility>

#include "feroce/runtime.hpp"

namespace feroce::rdma {

class FakeRuntime final : public Runtime {
public:
    Instant now() override { return now_; }
    void wait(Instant until, std::span<const int>) override {
        using std::chrono::milliseconds;
        now_ = std::max(now_, until == kNever ? now_ + milliseconds(1) : until);
    }
    void wake() override {}
    void relax() override {
        now_ += std::chrono::microseconds(1);
        spun_ += std::chrono::microseconds(1);
    }
    Duration spun() { return std::exchange(spun_, {}); }
    std::pmr::memory_resource& memory() override { return *std::pmr::get_default_resource(); }
    std::uint64_t random() override { return 4; }

private:
    Instant now_{};
    Duration spun_{};
};

}  // namespace feroce::rdma
