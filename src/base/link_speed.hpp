// The speed of a port in InfiniBand's words. Ethernet has no such lanes; the Linux kernel tells its
// speeds like this.
#pragma once

#include <cstdint>

namespace feroce {

struct LinkSpeed {
    std::uint32_t mbps_max;  // Up to this.
    std::uint8_t width;      // ibv_port_attr::active_width: 1, 2, 16 for one, four, two lanes.
    std::uint8_t speed;      // ibv_port_attr::active_speed.
    const char* text;        // The file `rate` of a port in /sys.
};

inline constexpr LinkSpeed kLinkSpeeds[] = {
    {1'000, 1, 1, "2.5 Gb/sec (1X SDR)"},        {10'000, 1, 8, "10 Gb/sec (1X FDR10)"},
    {20'000, 2, 2, "20 Gb/sec (4X DDR)"},        {25'000, 1, 32, "25 Gb/sec (1X EDR)"},
    {40'000, 2, 8, "40 Gb/sec (4X FDR10)"},      {50'000, 16, 32, "50 Gb/sec (2X EDR)"},
    {100'000, 2, 32, "100 Gb/sec (4X EDR)"},     {200'000, 2, 64, "200 Gb/sec (4X HDR)"},
    {UINT32_MAX, 2, 128, "400 Gb/sec (4X NDR)"},
};

constexpr const LinkSpeed& link_speed(std::uint32_t mbps) {
    const LinkSpeed* found = kLinkSpeeds;
    while (mbps > found->mbps_max) ++found;
    return *found;
}

}  // namespace feroce
