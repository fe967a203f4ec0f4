// GidPlaces: at which place of a list a gid is, without a search through the list. Takes its memory
// when it is made. The list itself says what is where, so a place is two bytes here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/assert.hpp"
#include "base/gid.hpp"

namespace feroce::port {

class GidPlaces {
public:
    static constexpr std::size_t kNone = ~std::size_t{0};

    // Half of it stays empty, so that few are looked at to find one, or that it is not there.
    explicit GidPlaces(std::size_t places_max) : entries_(std::bit_ceil(2 * places_max), kEmpty) {
        ASSERT(places_max < kEmpty);
    }

    // `gid_at(place)`: what the list has there. kNone: it is not in the list.
    template <class GidAt>
    std::size_t find(const Gid& gid, GidAt&& gid_at) const {
        for (std::size_t i = begin_of(gid);; i = next(i)) {
            if (entries_[i] == kEmpty) return kNone;
            if (gid_at(entries_[i]) == gid) return entries_[i];
        }
    }
    // Of a gid that is not there yet, and never more than it was made for.
    void add(const Gid& gid, std::size_t place) {
        std::size_t i = begin_of(gid);
        while (entries_[i] != kEmpty) i = next(i);
        entries_[i] = static_cast<std::uint16_t>(place);
    }
    void clear() { entries_.assign(entries_.size(), kEmpty); }

private:
    static constexpr std::uint16_t kEmpty = 0xffff;

    std::size_t begin_of(const Gid& gid) const {
        std::uint64_t words[2];
        std::memcpy(words, gid.raw.data(), sizeof words);
        // Neighbouring addresses differ in the last byte alone: a multiplication spreads it. The
        // factors are odd and have about as many ones as zeros.
        const std::uint64_t mixed =
            words[0] * 0x9e37'79b9'7f4a'7c15u ^ words[1] * 0xd6e8'feb8'6659'fd93u;
        return static_cast<std::size_t>((mixed ^ mixed >> 32) * 0x9e37'79b9'7f4a'7c15u >> 40) &
               (entries_.size() - 1);
    }
    std::size_t next(std::size_t i) const { return (i + 1) & (entries_.size() - 1); }

    std::vector<std::uint16_t> entries_;
};

}  // namespace feroce::port
