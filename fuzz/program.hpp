// A fuzzer's input read as a program: bytes and numbers from its front until it is used up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"

namespace feroce::fuzz {

class Program {
public:
    explicit Program(ByteView bytes) : rest_(bytes) {}
    bool done() const { return rest_.empty(); }
    std::uint8_t byte() { return static_cast<std::uint8_t>(number(1)); }  // 0 when it is over.
    std::uint32_t number(std::size_t bytes) {                             // Big-endian.
        std::uint32_t value = 0;
        for (std::size_t i = 0; i < bytes && !rest_.empty(); ++i) {
            value = value << 8 | std::to_integer<std::uint32_t>(rest_.front());
            rest_ = rest_.subspan(1);
        }
        return value;
    }
    ByteView bytes(std::size_t count) {
        const ByteView front = rest_.first(std::min(count, rest_.size()));
        rest_ = rest_.subspan(front.size());
        return front;
    }

private:
    ByteView rest_;
};

}  // namespace feroce::fuzz
