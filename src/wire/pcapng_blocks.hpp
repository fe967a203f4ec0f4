// The types of pcapng blocks that we read and write.
#pragma once

#include <cstdint>

namespace feroce::wire {

inline constexpr std::uint32_t kByteOrderMagic = 0x1a2b'3c4d;  // In a section block.

inline constexpr std::uint32_t kSectionBlock = 0x0a0d'0d0a;
inline constexpr std::uint32_t kInterfaceBlock = 1;
inline constexpr std::uint32_t kOldPacketBlock = 2;
inline constexpr std::uint32_t kSimplePacketBlock = 3;
inline constexpr std::uint32_t kPacketBlock = 6;

inline constexpr std::uint16_t kFlagsOption = 2;  // Of a packet; the low two bits: its direction.
inline constexpr std::uint32_t kInboundFlag = 1;
inline constexpr std::uint32_t kOutboundFlag = 2;

}  // namespace feroce::wire
