// Strong ids: a queue pair number is not a key is not a port. Mixing them does not compile.
#pragma once

#include <compare>
#include <cstdint>

namespace feroce {

template <class Tag, class Raw = std::uint32_t>
struct Id {
    Raw raw{};
    friend constexpr bool operator==(Id, Id) = default;
};

using Qpn = Id<struct QpnTag>;    // 24 bits: slot (process, shard) << 15 | random low part.
using LKey = Id<struct LKeyTag>;  // Names a region to its own process.
using RKey = Id<struct RKeyTag>;  // Names a region or window to peers.
using Qkey = Id<struct QkeyTag>;  // A datagram is taken only if its Q_Key matches.
using Pkey = Id<struct PkeyTag, std::uint16_t>;  // Partition; we know only the default one.
using PdId = Id<struct PdIdTag>;                 // Protection domain.
using SrqNumber = Id<struct SrqNumberTag>;       // 24 bits, carried by XRC packets.

// A shard of one of the processes that share a machine's UDP port: the upper bits of its queue pair
// numbers and of its communication ids, which steer packets to it.
using SlotNumber = std::uint16_t;
inline constexpr unsigned kSlotBits = 9;
inline constexpr unsigned kQpnLowBits = 24 - kSlotBits;
inline constexpr unsigned kCommIdLowBits = 32 - kSlotBits;

constexpr Qpn qpn_of(SlotNumber slot, std::uint32_t low) {
    return {std::uint32_t{slot} << kQpnLowBits | low};
}
constexpr SlotNumber slot_of(Qpn qpn) {
    return static_cast<SlotNumber>(qpn.raw >> kQpnLowBits);
}

inline constexpr Qpn kGeneralServicesQpn{1};    // QP1: the connection manager's datagrams.
inline constexpr Qpn kMulticastQpn{0xff'ffff};  // Destination QPN of every multicast packet.
inline constexpr Pkey kDefaultPkey{0xffff};

}  // namespace feroce
