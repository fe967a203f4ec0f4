// The PCI domain of addresses that are invented for devices without a card (FEROCE_PCI). No machine
// is known to have it, so whatever a program looks for there is in the tree of `feroce run`.
#pragma once

#include <cstdint>

namespace feroce {

inline constexpr std::uint16_t kInventedPciDomain = 0xfe0c;
inline constexpr char kInventedPciDomainText[] = "fe0c:";

}  // namespace feroce
