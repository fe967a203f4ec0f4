// Gid: the 16-byte address of a port. On RoCE v2 it is the IP address, IPv4 as ::ffff:a.b.c.d.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

namespace feroce {

struct Gid {
    std::array<std::uint8_t, 16> raw{};

    friend constexpr auto operator<=>(const Gid&, const Gid&) = default;
    // By words, as is_v4(): every packet asks several times.
    friend constexpr bool operator==(const Gid& a, const Gid& b) {
        const auto left = std::bit_cast<std::array<std::uint64_t, 2>>(a.raw);
        const auto right = std::bit_cast<std::array<std::uint64_t, 2>>(b.raw);
        return left[0] == right[0] && left[1] == right[1];
    }

    static constexpr Gid from_v4(std::uint32_t host_order) {
        Gid g;
        g.raw[10] = g.raw[11] = 0xff;
        for (std::size_t i = 0; i < 4; ++i)
            g.raw[12 + i] = static_cast<std::uint8_t>(host_order >> (24 - 8 * i));
        return g;
    }
    constexpr bool is_v4() const {
        constexpr auto kMapped =
            std::bit_cast<std::uint32_t>(std::array<std::uint8_t, 4>{0, 0, 0xff, 0xff});
        const auto words = std::bit_cast<std::array<std::uint32_t, 4>>(raw);
        return words[0] == 0 && words[1] == 0 && words[2] == kMapped;
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
