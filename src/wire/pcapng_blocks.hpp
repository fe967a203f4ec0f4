// The types of pcapng blocks that we read and write.
#pragma once

#include <cstdint>

namespace feroce::wire {

inline constexpr std::uint32_t kSectionBlock = 0x0a0d'0d0a;
inline constexpr std::uint32_t kInterfaceBlock = 1;
inline constexpr std::uint32_t kPacketBlock = 6;

}  // namespace feroce::wire
