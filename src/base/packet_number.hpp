// PacketNumber: what a PSN counts, before 24 bits of it go on the wire. It never wraps, so it has
// an order. A PSN that arrives is widened once, against a number known to be near it; a number that
// leaves is cut to its PSN.
#pragma once

#include <compare>
#include <cstdint>

#include "base/assert.hpp"
#include "base/psn.hpp"

namespace feroce {

// The number with these low 24 bits that is nearest to `near`: in [near - 2^23, near + 2^23).
constexpr std::uint64_t widen(std::uint64_t near, std::uint32_t low) {
    const auto from = static_cast<std::uint32_t>(near);
    return near + static_cast<std::uint64_t>(std::int64_t{distance(Psn(from), Psn(low))});
}

class PacketNumber {
public:
    // Numbers begin here, so that there are numbers before the first one, as there are PSNs.
    static constexpr std::uint64_t kStart = std::uint64_t{1} << 24;

    constexpr PacketNumber() = default;
    static constexpr PacketNumber first(Psn psn) { return PacketNumber(kStart + psn.raw()); }

    constexpr Psn psn() const { return Psn(static_cast<std::uint32_t>(raw_)); }
    constexpr PacketNumber nearest(Psn psn) const { return PacketNumber(widen(raw_, psn.raw())); }

    friend constexpr auto operator<=>(PacketNumber, PacketNumber) = default;
    friend constexpr PacketNumber operator+(PacketNumber p, std::uint64_t n) {
        return PacketNumber(p.raw_ + n);
    }
    friend constexpr PacketNumber operator-(PacketNumber p, std::uint64_t n) {
        return PacketNumber(p.raw_ - n);
    }
    // How many packets lie in [from, to).
    friend constexpr std::uint64_t operator-(PacketNumber to, PacketNumber from) {
        ASSERT(from <= to);
        return to.raw_ - from.raw_;
    }

private:
    constexpr explicit PacketNumber(std::uint64_t raw) : raw_(raw) {}

    std::uint64_t raw_ = kStart;
};

static_assert(PacketNumber::first(Psn(5)).nearest(Psn(0xff'ffff)) < PacketNumber::first(Psn(0)));
static_assert(PacketNumber::first(Psn(0xff'ffff)).nearest(Psn(0)) ==
              PacketNumber::first(Psn(0xff'ffff)) + 1);

}  // namespace feroce
