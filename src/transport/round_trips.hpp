// RoundTrips: how long packets and their acknowledgements took, as counts by duration. The samples
// are those that the send window learns from, so no clock is read for them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/time.hpp"

namespace feroce::transport {

struct RoundTrips {
    // Bound i is 2^i microseconds: from one microsecond to four seconds.
    static constexpr std::size_t kBounds = 23;

    std::array<std::uint64_t, kBounds + 1> counts{};  // The last: longer than all bounds.
    std::uint64_t sum_ns = 0;

    // The first bound that is not below the duration.
    static std::size_t place(std::uint64_t ns) {
        const std::uint64_t whole_us_below = ns == 0 ? 0 : (ns - 1) / 1000;
        return std::min<std::size_t>(std::bit_width(whole_us_below), kBounds);
    }
    void add(Duration sample) {
        const auto ns = static_cast<std::uint64_t>(std::max(sample, Duration{0}).count());
        ++counts[place(ns)];
        sum_ns += ns;
    }
};

}  // namespace feroce::transport
