// Psn: the 24-bit packet sequence number. It wraps, so it has a distance but no order.
#pragma once

#include <cstdint>

namespace feroce {

// Fewer only in a build of the simulator whose messages have nearly half as many packets as there
// are numbers.
#ifndef FEROCE_PSN_BITS
#define FEROCE_PSN_BITS 24
#endif

class Psn {
public:
    static constexpr std::uint32_t kBits = FEROCE_PSN_BITS;
    static constexpr std::uint32_t kCount = std::uint32_t{1} << kBits;

    constexpr Psn() = default;
    constexpr explicit Psn(std::uint32_t raw) : raw_(raw & (kCount - 1)) {}
    constexpr std::uint32_t raw() const { return raw_; }

    friend constexpr bool operator==(Psn, Psn) = default;
    friend constexpr Psn operator+(Psn p, std::uint32_t n) { return Psn(p.raw_ + n); }
    friend constexpr Psn operator-(Psn p, std::uint32_t n) { return Psn(p.raw_ - n); }

    // How far `to` is ahead of `from`, in [-2^23, 2^23).
    friend constexpr std::int32_t distance(Psn from, Psn to) {
        constexpr std::uint32_t kUnused = 32 - kBits;
        return static_cast<std::int32_t>((to.raw_ - from.raw_) << kUnused) >> kUnused;
    }
    // Not an order: 0xffffff precedes 0.
    friend bool operator<(Psn, Psn) = delete;

private:
    std::uint32_t raw_ = 0;
};

static_assert(distance(Psn(0xff'ffff), Psn(0)) == 1);
static_assert(distance(Psn(0), Psn(0xff'ffff)) == -1);
static_assert(distance(Psn(0), Psn(Psn::kCount / 2)) == -std::int32_t{Psn::kCount / 2});

}  // namespace feroce
