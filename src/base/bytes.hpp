// Big-endian loads and stores over fixed-size spans, and the little-endian ones that session
// messages need. Each is one load or store of the machine and, where its order is another, a byte
// swap; from single bytes compilers make that of a load only, and of a store only if its value was
// not put together from several.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace feroce {

using ByteView = std::span<const std::byte>;
using ByteSpan = std::span<std::byte>;

constexpr std::uint32_t byte_at(ByteView b, std::size_t i) {
    return std::to_integer<std::uint32_t>(b[i]);
}

namespace detail {

template <std::endian kOrder, class T>
constexpr T reordered(T v) {
    if constexpr (kOrder == std::endian::native)
        return v;
    else if constexpr (sizeof(T) == 2)
        return __builtin_bswap16(v);
    else if constexpr (sizeof(T) == 4)
        return __builtin_bswap32(v);
    else
        return __builtin_bswap64(v);
}

template <std::endian kOrder, class T>
constexpr T load(std::span<const std::byte, sizeof(T)> b) {
    std::array<std::byte, sizeof(T)> bytes;
    std::copy_n(b.data(), sizeof(T), bytes.data());
    return reordered<kOrder>(std::bit_cast<T>(bytes));
}

template <std::endian kOrder, class T>
constexpr void store(std::span<std::byte, sizeof(T)> b, T v) {
    const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(reordered<kOrder>(v));
    std::copy_n(bytes.data(), sizeof(T), b.data());
}

}  // namespace detail

constexpr std::uint8_t load_u8(std::span<const std::byte, 1> b) {
    return std::to_integer<std::uint8_t>(b[0]);
}
constexpr std::uint16_t load_be16(std::span<const std::byte, 2> b) {
    return detail::load<std::endian::big, std::uint16_t>(b);
}
constexpr std::uint32_t load_be24(std::span<const std::byte, 3> b) {
    return byte_at(b, 0) << 16 | byte_at(b, 1) << 8 | byte_at(b, 2);
}
constexpr std::uint32_t load_be32(std::span<const std::byte, 4> b) {
    return detail::load<std::endian::big, std::uint32_t>(b);
}
constexpr std::uint64_t load_be64(std::span<const std::byte, 8> b) {
    return detail::load<std::endian::big, std::uint64_t>(b);
}

constexpr void store_u8(std::span<std::byte, 1> b, std::uint8_t v) {
    b[0] = std::byte{v};
}
constexpr void store_be16(std::span<std::byte, 2> b, std::uint16_t v) {
    detail::store<std::endian::big>(b, v);
}
constexpr void store_be24(std::span<std::byte, 3> b, std::uint32_t v) {
    b[0] = static_cast<std::byte>(v >> 16 & 0xff);
    b[1] = static_cast<std::byte>(v >> 8 & 0xff);
    b[2] = static_cast<std::byte>(v & 0xff);
}
constexpr void store_be32(std::span<std::byte, 4> b, std::uint32_t v) {
    detail::store<std::endian::big>(b, v);
}
constexpr void store_be64(std::span<std::byte, 8> b, std::uint64_t v) {
    detail::store<std::endian::big>(b, v);
}

constexpr std::uint16_t load_le16(std::span<const std::byte, 2> b) {
    return detail::load<std::endian::little, std::uint16_t>(b);
}
constexpr std::uint32_t load_le32(std::span<const std::byte, 4> b) {
    return detail::load<std::endian::little, std::uint32_t>(b);
}
constexpr std::uint64_t load_le64(std::span<const std::byte, 8> b) {
    return detail::load<std::endian::little, std::uint64_t>(b);
}

constexpr void store_le16(std::span<std::byte, 2> b, std::uint16_t v) {
    detail::store<std::endian::little>(b, v);
}
constexpr void store_le32(std::span<std::byte, 4> b, std::uint32_t v) {
    detail::store<std::endian::little>(b, v);
}
constexpr void store_le64(std::span<std::byte, 8> b, std::uint64_t v) {
    detail::store<std::endian::little>(b, v);
}

}  // namespace feroce
