// Gid: the 16-byte address of a port. On RoCE v2 it is the IP address, IPv4 as ::ffff:a.b.c.d.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

namespace feroce {

struct Gid {
    std::array<std::uint8_t, 16> raw{};

    friend constexpr auto operator<=>(const Gid&, const Gid&) = default;

    static constexpr Gid from_v4(std::uint32_t host_order) {
        Gid g;
        g.raw[10] = g.raw[11] = 0xff;
        for (std::size_t i = 0; i < 4; ++i)
            g.raw[12 + i] = static_cast<std::uint8_t>(host_order >> (24 - 8 * i));
        return g;
    }
    constexpr bool is_v4() const {
        for (std::size_t i = 0; i < 10; ++i)
            if (raw[i] != 0) return false;
        return raw[10] == 0xff && raw[11] == 0xff;
    }
    constexpr std::uint32_t v4() const {  // Host order; meaningful only if is_v4().
        return std::uint32_t{raw[12]} << 24 | std::uint32_t{raw[13]} << 16 |
               std::uint32_t{raw[14]} << 8 | std::uint32_t{raw[15]};
    }
    constexpr bool is_multicast() const {
        return is_v4() ? (raw[12] & 0xf0) == 0xe0 : raw[0] == 0xff;
    }
    constexpr bool is_zero() const { return *this == Gid{}; }
};

std::string to_string(const Gid& gid);  // As an IP address: 127.0.0.1, fe80::1.

}  // namespace feroce
