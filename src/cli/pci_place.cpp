#include "cli/pci_place.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/invented_pci.hpp"

namespace feroce::cli {
namespace {

// Just so many hexadecimal digits before `behind`, or up to the end if that is 0; taken off `text`.
template <class Number>
bool take(std::string_view& text, std::size_t digits, char behind, Number limit, Number& out) {
    const std::size_t length = digits + (behind == '\0' ? 0 : 1);
    if (behind == '\0' ? text.size() != length : text.size() <= length) return false;
    if (behind != '\0' && text[digits] != behind) return false;
    const char* const end = text.data() + digits;
    const auto [last, error] = std::from_chars(text.data(), end, out, 16);
    text.remove_prefix(length);
    return error == std::errc{} && last == end && out <= limit;
}

// That of the last component which is one: a virtio card is a device below one of PCI.
std::optional<PciAddress> address_in(std::string_view path) {
    while (!path.empty()) {
        const std::size_t slash = path.rfind('/');
        const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
        if (const auto found = PciAddress::parse(path.substr(begin))) return found;
        path = path.substr(0, slash == std::string_view::npos ? 0 : slash);
    }
    return std::nullopt;
}

}  // namespace

std::optional<PciAddress> PciAddress::parse(std::string_view text) {
    constexpr std::size_t kColons = 2;
    PciAddress out;
    const bool has_domain = std::count(text.begin(), text.end(), ':') == kColons;
    if (has_domain && !take<std::uint16_t>(text, 4, ':', 0xffff, out.domain)) return std::nullopt;
    if (!take<std::uint8_t>(text, 2, ':', 0xff, out.bus)) return std::nullopt;
    if (!take<std::uint8_t>(text, 2, '.', 31, out.slot)) return std::nullopt;
    if (!take<std::uint8_t>(text, 1, '\0', 7, out.function)) return std::nullopt;
    return out;
}

std::string PciAddress::text() const {
    return fmt::format("{}:{:02x}.{:x}", bus_name(), slot, function);
}

std::string PciAddress::bus_name() const {
    return fmt::format("{:04x}:{:02x}", domain, bus);
}

Result<PciPlaces> PciPlaces::parse(std::string_view setting) {
    PciPlaces out;
    if (setting.empty() || setting == "off") return out;
    out.of_cards_ = setting == "on";
    out.first_ = out.of_cards_ ? PciAddress{kInventedPciDomain, 1, 0, 0}  // Bus 0 is a bridge's.
                               : PciAddress::parse(setting);
    if (out.first_) return out;
    return Error{EINVAL, "FEROCE_PCI is none of on, off and an address such as 0000:c1:00.0"};
}

std::optional<PciAddress> PciPlaces::of(std::size_t number, std::string_view card) const {
    if (!first_) return std::nullopt;
    if (of_cards_)
        if (const auto own = address_in(card)) return own;
    PciAddress out = *first_;
    const std::size_t bus = (std::size_t{out.domain} << 8) + out.bus + number;
    out.domain = static_cast<std::uint16_t>(bus >> 8);
    out.bus = static_cast<std::uint8_t>(bus);
    return out;
}

}  // namespace feroce::cli
