// Slice: registered memory that a key check has allowed, for touch.hpp; and Fault: why one has not.
// A Slice is good only within the shard's critical section that looked it up: deregistration passes
// through every shard before it returns to the application (see memory.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace feroce::mem {

enum class Fault : std::uint8_t {
    None,
    NoSuchKey,     // Never issued, stale, or a window that is not bound.
    WrongPd,       // The key is good, but not in the queue pair's protection domain.
    NoPermission,  // The region or window does not grant this access.
    OutOfBounds,   // Some byte lies outside of the region, window or list.
    Misaligned,    // An atomic whose word is not 8-byte aligned.
    NotBoundToQp,  // A type 2 window, through another queue pair than the one that bound it.
    Unmapped,      // The memory was unmapped, protected or truncated under its registration.
    Far,           // Allowed, but reached by copies only: see far_memory.hpp.
};

const char* to_string(Fault fault);  // One clause for logs and reason chains.

// Two words on purpose: it travels in registers.
struct Slice {
    // Never to be dereferenced outside of touch.cpp. Null stands for the null region, whose reads
    // give zeros and whose writes vanish; no other slice has it, unless its length is zero.
    std::byte* base = nullptr;
    std::uint64_t length = 0;

    bool null_region() const { return base == nullptr; }
    Slice part(std::uint64_t offset, std::uint64_t size) const {
        return {null_region() ? nullptr : base + offset, size};
    }
};

struct Lookup {
    Fault fault = Fault::None;
    Slice slice;  // Valid only if fault is None. With Far it says where, for a Copy.
};

}  // namespace feroce::mem
