// What a key permits. The bit values are libibverbs', so that the ABI layer casts and does not map.
#pragma once

#include <cstdint>

namespace feroce::mem {

enum class Access : std::uint32_t {
    LocalWrite = 1,
    RemoteWrite = 2,
    RemoteRead = 4,
    RemoteAtomic = 8,
    MwBind = 16,
    ZeroBased = 32,
    OnDemand = 64,
    HugeTlb = 128,
    FlushGlobal = 256,
    FlushPersistent = 512,
    RelaxedOrdering = 1u << 20,
    Far = 1u << 31,  // Ours: the memory is reached by copies only (far_memory.hpp).
};

struct AccessSet {
    std::uint32_t raw = 0;

    constexpr AccessSet() = default;
    constexpr explicit AccessSet(std::uint32_t bits) : raw(bits) {}
    constexpr AccessSet(Access one) : raw(static_cast<std::uint32_t>(one)) {}  // A set of one.

    constexpr bool has(Access one) const { return (raw & static_cast<std::uint32_t>(one)) != 0; }
    constexpr bool covers(AccessSet need) const { return (need.raw & ~raw) == 0; }
    constexpr bool overlaps(AccessSet other) const { return (raw & other.raw) != 0; }

    friend constexpr AccessSet operator|(AccessSet a, AccessSet b) {
        return AccessSet(a.raw | b.raw);
    }
    friend constexpr bool operator==(AccessSet, AccessSet) = default;
};

constexpr AccessSet operator|(Access a, Access b) {
    return AccessSet(a) | AccessSet(b);
}

// Bits that ask for a hint and may be ignored: IB_UVERBS_ACCESS_OPTIONAL_RANGE, bits 20 to 29.
inline constexpr AccessSet kOptionalAccess{0x3ff0'0000};
// Bits that a device must know or refuse.
inline constexpr AccessSet kMandatoryAccess{0x3ff};
// What lets a peer change memory; IBTA: only where the owner may write it too.
inline constexpr AccessSet kRemoteChange = Access::RemoteWrite | Access::RemoteAtomic;

}  // namespace feroce::mem
