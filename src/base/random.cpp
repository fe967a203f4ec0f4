#include "base/random.hpp"

#include <bit>

#include "base/assert.hpp"

namespace feroce {

namespace {

std::uint64_t splitmix64(std::uint64_t& state) {
    std::uint64_t z = state += 0x9e37'79b9'7f4a'7c15;
    z = (z ^ z >> 30) * 0xbf58'476d'1ce4'e5b9;
    z = (z ^ z >> 27) * 0x94d0'49bb'1331'11eb;
    return z ^ z >> 31;
}

}  // namespace

Prng::Prng(std::uint64_t seed) {
    for (std::uint64_t& word : state_) word = splitmix64(seed);
}

std::uint64_t Prng::next() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
}

std::uint64_t Prng::below(std::uint64_t bound) {
    ASSERT(bound > 0);
    return next() % bound;  // The bias is below 2^-40 for the small bounds used here.
}

bool Prng::chance(double probability) {
    return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability;
}

}  // namespace feroce
