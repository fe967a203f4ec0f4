// What every node's segment begins with, and where the rest of it is. The layout is the same on all
// nodes, so that one knows where another's words are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "feroce/gas/allocator.hpp"
#include "feroce/gas/epochs.hpp"
#include "feroce/gas/sync/guarded.hpp"

namespace feroce::gas::detail {

inline constexpr std::size_t kBarrierRounds = 16;  // 2^16 nodes.
inline constexpr std::size_t kNames = 64;
inline constexpr std::size_t kNameBytes = 40;  // With a 0 at the end.
inline constexpr std::size_t kAddressText = 64;

// A name for a pointer.
struct Named {
    std::uint64_t pointer = 0;  // Bits. Null: the entry is free.
    std::uint64_t object_bytes = 0;
    char name[kNameBytes] = {};

    std::string_view text() const { return {name, ::strnlen(name, kNameBytes)}; }
};

// All of them. Every node has them; the first node that lives keeps those that count (names.cpp).
struct Names {
    std::array<Named, kNames> entries{};
};

// A node as the others get to know it; filled in at node 0 while the cluster comes together.
struct alignas(64) DirectoryEntry {
    plain<std::uint64_t> ready;  // 1 when the rest is.
    plain<std::uint64_t> left;   // 1: it has said good-bye; in every node's copy.
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
    std::uint32_t rkey = 0;
    std::uint16_t threads = 0;
    std::uint8_t loopback = 0;  // It also connects to itself.
    std::uint8_t checked = 0;   // Its heap.
    char address[kAddressText] = {};

    void set_address(std::string_view text) {
        std::memcpy(address, text.data(), std::min(text.size(), kAddressText - 1));
    }
};

struct alignas(64) Control {
    plain<std::uint64_t> barrier[kBarrierRounds];  // The epoch that its writer has reached.
    plain<std::uint64_t> arrived;                  // The barrier that this node has come to.
    plain<std::uint64_t> warned;                   // Not 0: there are losses.
    nic<std::uint64_t> heap_next;                  // The first byte that no chunk has.
    nic<std::uint64_t> heap_pools[Allocator::kClasses];
    nic<std::uint64_t> heap_live;    // Blocks in use, if the node checks.
    plain<std::uint64_t> broadcast;  // Where what this node tells everybody is.
    Guarded<Names>::Block names;
};

struct Layout {
    std::size_t nodes;
    std::size_t threads;

    static constexpr std::size_t directory() { return sizeof(Control); }
    // A word for each node. Not 0: somebody has found it lost.
    std::size_t losses() const { return directory() + nodes * sizeof(DirectoryEntry); }
    // A word for each node: the barrier that it has come to, as it has written here after a loss.
    std::size_t arrivals() const { return losses() + words(); }
    std::size_t buffers() const { return arrivals() + words(); }
    std::size_t pins() const { return buffers() + threads * Lanes::buffer_bytes(nodes); }
    std::size_t heap() const { return pins() + threads * sizeof(Epochs::Pinned); }
    std::size_t words() const { return (nodes * 8 + 63) / 64 * 64; }
};

}  // namespace feroce::gas::detail
