// The only functions of the product that touch registered memory. The application writes that
// memory at will and may unmap it at any time, so every access is one machine instruction of ours
// that survives a fault (guard.hpp), never a C++ load or store that a compiler may split or repeat.
//
// The memory-order contract, on which pollers of memory and our own locks stand:
//  - each aligned 8-byte word wholly inside a copy is accessed exactly once, whole; what a copy
//    covers only in part is accessed in naturally aligned pieces of 4, 2 and 1 bytes, each once;
//  - a delivery stores in ascending order as far as the architecture keeps it (amd64 does), and on
//    all architectures the aligned piece with the last byte is stored last, with release;
//  - a full (seq_cst) fence stands between any delivery or atomic and the next READ snapshot or
//    atomic. It stands BEFORE the later of the two: atomics bring their own, and whoever answers a
//    READ calls order_before_read() once per READ request before its first read_memory. A gather
//    for sending needs none.
// In the rare third mode of guard.hpp the kernel copies for us; it moves whole words in ascending
// order too, but promises nothing.
//
// All are noexcept, allocate nothing, and return false or nullopt when the memory is gone; what was
// copied until then is unspecified. A slice of length zero is never touched.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "mem/slice.hpp"

namespace feroce::mem {

// Sizes must agree: from.length == into.size().
[[nodiscard]] bool read_memory(Slice from, ByteSpan into) noexcept;
[[nodiscard]] bool write_memory(Slice to, ByteView from) noexcept;
// Where the slice began that this thread last found unmapped; 0 if none. For messages.
std::uintptr_t last_unmapped() noexcept;

// Words are in host order, 8 bytes long and aligned (Memory::remote has checked that for
// RemoteAtomic; for atomic_write ask is_aligned_word). CPU atomics, so they are atomic with the
// application's own ones too. The value before the operation is returned.
std::optional<std::uint64_t> compare_swap(Slice word, std::uint64_t compare,
                                          std::uint64_t swap) noexcept;
std::optional<std::uint64_t> fetch_add(Slice word, std::uint64_t add) noexcept;
[[nodiscard]] bool atomic_write(Slice word, std::uint64_t value) noexcept;

inline bool is_aligned_word(Slice slice) {
    return slice.length == 8 && reinterpret_cast<std::uintptr_t>(slice.base) % 8 == 0;
}

void order_before_read() noexcept;

// For registration: is all of it mapped, readable, and writable if asked? Mapping is checked in
// full without populating pages; protection on at most 16 pages spread over the range, first and
// last included, so a read-only hole in a large region shows up only when it is touched.
[[nodiscard]] bool probe_memory(void* address, std::uint64_t length, bool writable) noexcept;

}  // namespace feroce::mem
