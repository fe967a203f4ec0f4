// The runtime's randomness as what base/ takes.
#pragma once

#include "base/random.hpp"
#include "feroce/runtime.hpp"

namespace feroce::rtrs {

class RuntimeRandom final : public RandomSource {
public:
    explicit RuntimeRandom(rdma::Runtime& runtime) : runtime_(runtime) {}
    std::uint64_t next() override { return runtime_.random(); }

private:
    rdma::Runtime& runtime_;
};

}  // namespace feroce::rtrs
