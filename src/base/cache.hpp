// The unit in which a processor fetches memory, and how to ask for it early. Only a matter of
// speed: nothing depends on either.
#pragma once

#include <cstddef>

namespace feroce {

inline constexpr std::size_t kCacheLine = 64;

// Waiting for one line after another costs a trip to memory each; asking for all of them before the
// first is used costs one trip. Any address will do: a bad one is ignored.
inline void prefetch(const void* address, std::size_t bytes = 1) {
    const auto* at = static_cast<const std::byte*>(address);
    for (std::size_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(at + i);
}

inline void prefetch_to_write(const void* address) {
    __builtin_prefetch(address, 1);
}

}  // namespace feroce
