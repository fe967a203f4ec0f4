// Where devices are said to be on the PCI bus, for programs that insist on a place there:
// FEROCE_PCI. A soft device is nowhere, so without the setting nothing is said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace feroce::cli {

struct PciAddress {
    std::uint16_t domain = 0;
    std::uint8_t bus = 0;
    std::uint8_t slot = 0;      // Below 32.
    std::uint8_t function = 0;  // Below 8.

    // As the kernel writes it: 0000:c1:00.0, of which the domain may be missing.
    static std::optional<PciAddress> parse(std::string_view text);

    std::string text() const;      // 0000:c1:00.0
    std::string bus_name() const;  // 0000:c1

    bool operator==(const PciAddress&) const = default;
};

class PciPlaces {
public:
    PciPlaces() = default;  // None.
    // Of FEROCE_PCI: off or nothing; on; or the address of the first device.
    static Result<PciPlaces> parse(std::string_view setting);

    // Of the device with this number, whose interface's card has this path in /sys, or none.
    // With `on`: the card's own address, else an invented one. With an address: so many buses
    // behind it, for functions of one card would be taken for its ports.
    std::optional<PciAddress> of(std::size_t number, std::string_view card) const;

private:
    bool of_cards_ = false;            // A card's own address comes first.
    std::optional<PciAddress> first_;  // Of the device with number 0; empty: nothing is said.
};

}  // namespace feroce::cli
