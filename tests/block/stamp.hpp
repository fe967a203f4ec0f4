// What tests write into the blocks of a disk, so that a block tells whose it is, in which version,
// and whether it is whole. Version 0 is what was never written: zeroes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace feroce {

// Calls `wants` with each byte and what belongs there, until it says no.
template <class Wants>
bool each_stamped_byte(std::span<std::byte> block, std::uint32_t number, std::uint32_t version,
                       Wants wants) {
    std::uint64_t state = std::uint64_t{number} << 32 | version;
    std::byte head[sizeof state];
    std::memcpy(head, &state, sizeof state);
    for (std::size_t i = 0; i < block.size(); ++i) {
        if (i >= sizeof state) state = state * 6364136223846793005u + 1442695040888963407u;
        const auto byte = i < sizeof head ? head[i] : static_cast<std::byte>(state >> 56);
        if (!wants(block[i], version == 0 ? std::byte{0} : byte)) return false;
    }
    return true;
}

inline void stamp(std::span<std::byte> block, std::uint32_t number, std::uint32_t version) {
    each_stamped_byte(block, number, version, [](std::byte& at, std::byte value) {
        at = value;
        return true;
    });
}

// The version of a block; nothing if it is torn, or another's.
inline std::optional<std::uint32_t> version_of(std::span<std::byte> block, std::uint32_t number) {
    std::uint32_t version = 0;
    std::memcpy(&version, block.data(), sizeof version);
    const auto same = [](std::byte& at, std::byte value) { return at == value; };
    if (!each_stamped_byte(block, number, version, same)) return std::nullopt;
    return version;
}

}  // namespace feroce
