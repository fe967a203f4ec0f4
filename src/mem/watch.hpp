// Watch: for lint and sanitizers, a word in how the device writes registered memory. While there is
// none, which is the rule, it costs nothing: writes that are watched take the guard's slow path,
// because with a watch no thread is remembered as Direct.
#pragma once

#include <cstddef>

namespace feroce::mem {

struct Watch {
    // Writes all of `from` to `at` by calls of store(), in an order of its own; false if one fails.
    using Store = bool (*)(std::byte* at, const std::byte* from, std::size_t size);
    bool (*place)(std::byte* at, const std::byte* from, std::size_t size, Store store);  // Or null.
    // These bytes were written.
    void (*written)(const void* at, std::size_t size);  // Or null.
};

// Before the first device is opened; `watch` lives as long as the process.
void set_watch(const Watch& watch) noexcept;

}  // namespace feroce::mem
