// Pattern: bytes that follow from a key, so that whoever reads them can tell which message they are
// of and where in it they stood.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"

namespace feroce::sim {

struct Pattern {
    std::uint64_t key = 0;
    std::uint64_t start = 0;  // Where in the endless pattern the first byte stands.

    std::byte at(std::uint64_t index) const {
        const std::uint64_t place = start + index;
        return static_cast<std::byte>(word(place / 8) >> (place % 8 * 8));
    }
    std::uint64_t word(std::uint64_t number) const {
        // The finaliser of splitmix64.
        std::uint64_t z = key + (number + 1) * 0x9e37'79b9'7f4a'7c15;
        z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9;
        z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11eb;
        return z ^ (z >> 31);
    }
    void fill(ByteSpan into) const {
        for (std::size_t i = 0; i < into.size(); ++i) into[i] = at(i);
    }
    // Index of the first byte that differs, or bytes.size().
    std::size_t mismatch(ByteView bytes) const {
        for (std::size_t i = 0; i < bytes.size(); ++i)
            if (bytes[i] != at(i)) return i;
        return bytes.size();
    }
};

}  // namespace feroce::sim
