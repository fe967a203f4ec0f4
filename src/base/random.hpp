// Randomness is always handed in. Keys, queue pair numbers and ids come from a RandomSource, which
// is the kernel's CSPRNG in the product and a seeded Prng in simulation.
#pragma once

#include <cstdint>

namespace feroce {

class RandomSource {
public:
    virtual ~RandomSource() = default;
    virtual std::uint64_t next() = 0;
};

// xoshiro256**, seeded by splitmix64. Not for secrets.
class Prng final : public RandomSource {
public:
    explicit Prng(std::uint64_t seed);

    std::uint64_t next() override;
    std::uint64_t below(std::uint64_t bound);  // Uniform in [0, bound); bound > 0.
    bool chance(double probability);

private:
    std::uint64_t state_[4];
};

}  // namespace feroce
