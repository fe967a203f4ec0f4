// The CPU's way to shared memory of the own node: whole words are accessed once each, so that a
// word that another node writes meanwhile is seen before or after, never half. Every word is a
// yield point: a simulation tears what may be torn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "feroce/gas/word.hpp"

namespace feroce::gas::detail {

inline bool aligned(std::uint64_t address) {
    return address % 8 == 0;
}

// acquire: what was written before a word that is seen here is seen later.
inline void copy_from_shared(void* into, std::uint64_t address, std::size_t bytes) {
    auto* out = static_cast<std::byte*>(into);
    const auto* from = reinterpret_cast<const std::byte*>(address);
    while (bytes > 0) {
        shared_access();
        if (aligned(reinterpret_cast<std::uint64_t>(from)) && bytes >= 8) {
            const std::uint64_t word =
                __atomic_load_n(reinterpret_cast<const std::uint64_t*>(from), __ATOMIC_ACQUIRE);
            std::memcpy(out, &word, 8);
            from += 8, out += 8, bytes -= 8;
        } else {
            *out = static_cast<std::byte>(
                __atomic_load_n(reinterpret_cast<const std::uint8_t*>(from), __ATOMIC_ACQUIRE));
            ++from, ++out, --bytes;
        }
    }
}

// release: a node that sees a word sees the words before it.
inline void copy_to_shared(std::uint64_t address, const void* from, std::size_t bytes) {
    const auto* in = static_cast<const std::byte*>(from);
    auto* into = reinterpret_cast<std::byte*>(address);
    while (bytes > 0) {
        shared_access();
        if (aligned(reinterpret_cast<std::uint64_t>(into)) && bytes >= 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, in, 8);
            __atomic_store_n(reinterpret_cast<std::uint64_t*>(into), word, __ATOMIC_RELEASE);
            into += 8, in += 8, bytes -= 8;
        } else {
            __atomic_store_n(reinterpret_cast<std::uint8_t*>(into), static_cast<std::uint8_t>(*in),
                             __ATOMIC_RELEASE);
            ++into, ++in, --bytes;
        }
    }
}

inline Cell& cell_at(std::uint64_t address) {
    return *reinterpret_cast<Cell*>(address);
}

}  // namespace feroce::gas::detail
