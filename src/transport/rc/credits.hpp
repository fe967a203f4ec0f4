// End-to-end credits: how many receives a responder has posted, as the five bits of an ACK syndrome
// say it. IBTA table 46: exact up to four, then ever more coarsely.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace feroce::transport::rc {

inline constexpr std::array<std::uint32_t, 31> kCreditCounts{
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

// Rounded down: never promises a receive that is not there.
inline std::uint8_t encode_credits(std::uint32_t posted) {
    const auto above = std::upper_bound(kCreditCounts.begin(), kCreditCounts.end(), posted);
    return static_cast<std::uint8_t>(above - kCreditCounts.begin() - 1);
}

}  // namespace feroce::transport::rc
