// ShortBytes<N>: up to N bytes as a key or a value of a map, for programs whose types are not known
// when they are compiled, as those of Python. Two are equal if their bytes are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace feroce::gas {

template <std::size_t kCapacity>
class ShortBytes {
    static_assert(kCapacity % 8 == 0, "without padding");

public:
    ShortBytes() = default;
    // What does not fit is left away.
    ShortBytes(std::span<const std::byte> bytes) : size_(std::min(bytes.size(), kCapacity)) {
        std::copy_n(bytes.begin(), size_, bytes_.begin());
    }
    explicit ShortBytes(std::string_view text) : ShortBytes(std::as_bytes(std::span(text))) {}

    // Memory of others may say anything.
    std::span<const std::byte> bytes() const {
        return std::span(bytes_).first(std::min<std::size_t>(size_, kCapacity));
    }
    std::string_view text() const {
        return {reinterpret_cast<const char*>(bytes_.data()), bytes().size()};
    }
    friend bool operator==(const ShortBytes&, const ShortBytes&) = default;

private:
    std::uint64_t size_ = 0;
    std::array<std::byte, kCapacity> bytes_{};  // Zero behind its end.
};

// HashMap<ShortKey, ShortValue> is what `feroce.HashMap` is in Python. Four entries are in a
// bucket.
using ShortKey = ShortBytes<56>;
using ShortValue = ShortBytes<120>;

}  // namespace feroce::gas
