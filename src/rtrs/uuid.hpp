// The sixteen random bytes that name a session, or a path of one, on the wire.
#pragma once

#include <array>
#include <compare>
#include <cstddef>

#include "base/bytes.hpp"
#include "base/random.hpp"

namespace feroce::rtrs {

struct Uuid {
    std::array<std::byte, 16> bytes{};

    static Uuid random(RandomSource& source) {  // Version 4, as the kernel's are.
        Uuid made;
        store_be64(std::span(made.bytes).first<8>(), source.next());
        store_be64(std::span(made.bytes).last<8>(), source.next());
        made.bytes[6] = (made.bytes[6] & std::byte{0x0f}) | std::byte{0x40};
        made.bytes[8] = (made.bytes[8] & std::byte{0x3f}) | std::byte{0x80};
        return made;
    }

    friend auto operator<=>(const Uuid&, const Uuid&) = default;
};

}  // namespace feroce::rtrs
