// Big-endian loads and stores over fixed-size spans, and the little-endian ones that session
// messages need. Written out byte by byte: both compilers turn that into one load and a byte swap,
// which they do not for a loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace feroce {

using ByteView = std::span<const std::byte>;
using ByteSpan = std::span<std::byte>;

constexpr std::uint32_t byte_at(ByteView b, std::size_t i) {
    return std::to_integer<std::uint32_t>(b[i]);
}

constexpr std::uint8_t load_u8(std::span<const std::byte, 1> b) {
    return std::to_integer<std::uint8_t>(b[0]);
}
constexpr std::uint16_t load_be16(std::span<const std::byte, 2> b) {
    return static_cast<std::uint16_t>(byte_at(b, 0) << 8 | byte_at(b, 1));
}
constexpr std::uint32_t load_be24(std::span<const std::byte, 3> b) {
    return byte_at(b, 0) << 16 | byte_at(b, 1) << 8 | byte_at(b, 2);
}
constexpr std::uint32_t load_be32(std::span<const std::byte, 4> b) {
    return byte_at(b, 0) << 24 | byte_at(b, 1) << 16 | byte_at(b, 2) << 8 | byte_at(b, 3);
}
constexpr std::uint64_t load_be64(std::span<const std::byte, 8> b) {
    return std::uint64_t{load_be32(b.first<4>())} << 32 | load_be32(b.last<4>());
}

constexpr void store_u8(std::span<std::byte, 1> b, std::uint8_t v) {
    b[0] = std::byte{v};
}
constexpr void store_be16(std::span<std::byte, 2> b, std::uint16_t v) {
    b[0] = static_cast<std::byte>(v >> 8);
    b[1] = static_cast<std::byte>(v & 0xff);
}
constexpr void store_be24(std::span<std::byte, 3> b, std::uint32_t v) {
    b[0] = static_cast<std::byte>(v >> 16 & 0xff);
    b[1] = static_cast<std::byte>(v >> 8 & 0xff);
    b[2] = static_cast<std::byte>(v & 0xff);
}
constexpr void store_be32(std::span<std::byte, 4> b, std::uint32_t v) {
    b[0] = static_cast<std::byte>(v >> 24);
    b[1] = static_cast<std::byte>(v >> 16 & 0xff);
    b[2] = static_cast<std::byte>(v >> 8 & 0xff);
    b[3] = static_cast<std::byte>(v & 0xff);
}
constexpr void store_be64(std::span<std::byte, 8> b, std::uint64_t v) {
    store_be32(b.first<4>(), static_cast<std::uint32_t>(v >> 32));
    store_be32(b.last<4>(), static_cast<std::uint32_t>(v));
}

constexpr std::uint16_t load_le16(std::span<const std::byte, 2> b) {
    return static_cast<std::uint16_t>(byte_at(b, 1) << 8 | byte_at(b, 0));
}
constexpr std::uint32_t load_le32(std::span<const std::byte, 4> b) {
    return byte_at(b, 3) << 24 | byte_at(b, 2) << 16 | byte_at(b, 1) << 8 | byte_at(b, 0);
}
constexpr std::uint64_t load_le64(std::span<const std::byte, 8> b) {
    return std::uint64_t{load_le32(b.last<4>())} << 32 | load_le32(b.first<4>());
}

constexpr void store_le16(std::span<std::byte, 2> b, std::uint16_t v) {
    b[0] = static_cast<std::byte>(v & 0xff);
    b[1] = static_cast<std::byte>(v >> 8);
}
constexpr void store_le32(std::span<std::byte, 4> b, std::uint32_t v) {
    b[0] = static_cast<std::byte>(v & 0xff);
    b[1] = static_cast<std::byte>(v >> 8 & 0xff);
    b[2] = static_cast<std::byte>(v >> 16 & 0xff);
    b[3] = static_cast<std::byte>(v >> 24);
}
constexpr void store_le64(std::span<std::byte, 8> b, std::uint64_t v) {
    store_le32(b.first<4>(), static_cast<std::uint32_t>(v));
    store_le32(b.last<4>(), static_cast<std::uint32_t>(v >> 32));
}

}  // namespace feroce
