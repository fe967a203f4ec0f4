// NumberScramble: a secret, invertible shuffle of the 32,768 low parts of queue pair numbers.
// Numbers on the wire stay unpredictable, also to who was told some of them, while the table behind
// them fills from its start: were its places drawn at random, ten thousand queue pairs would have
// ten thousand cache lines of table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/ids.hpp"
#include "base/random.hpp"

namespace feroce::device {

class NumberScramble {
public:
    explicit NumberScramble(RandomSource& random) {
        for (Box& box : boxes_)
            for (std::uint8_t& byte : box) byte = static_cast<std::uint8_t>(random.next());
        for (const std::size_t upper : {0, 2})
            for (std::uint8_t& byte : boxes_[upper]) byte &= kUpperMask;
    }

    // A Feistel network of 7 and 8 bits: each round changes one part by a function of the other
    // one, which is still there to undo it.
    std::uint16_t number(std::uint16_t place) const {
        auto a = static_cast<std::uint8_t>(place >> 8), b = static_cast<std::uint8_t>(place);
        a ^= boxes_[0][b];
        b ^= boxes_[1][a];
        a ^= boxes_[2][b];
        return static_cast<std::uint16_t>(a << 8 | b);
    }
    std::uint16_t place(std::uint16_t number) const {
        auto a = static_cast<std::uint8_t>(number >> 8), b = static_cast<std::uint8_t>(number);
        a ^= boxes_[2][b];
        b ^= boxes_[1][a];
        a ^= boxes_[0][b];
        return static_cast<std::uint16_t>(a << 8 | b);
    }

private:
    static_assert(kQpnLowBits == 15);
    static constexpr std::uint8_t kUpperMask = 0x7f;
    using Box = std::array<std::uint8_t, 256>;
    std::array<Box, 3> boxes_;
};

}  // namespace feroce::device
