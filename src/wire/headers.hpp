// The extension headers as values. parse() is total because the size is in the type; emit() writes
// every bit, reserved ones included, so that parse and emit are exact inverses.
#pragma once

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "wire/aeth.hpp"
#include "wire/bth.hpp"

namespace feroce::wire {

struct Reth {
    std::uint64_t address = 0;
    RKey rkey{};
    std::uint32_t length = 0;  // Of the whole message, not of this packet.

    static constexpr std::size_t kSize = 16;
    static constexpr Reth parse(std::span<const std::byte, kSize> b) {
        return {.address = load_be64(b.subspan<0, 8>()),
                .rkey = {load_be32(b.subspan<8, 4>())},
                .length = load_be32(b.subspan<12, 4>())};
    }
    constexpr void emit(std::span<std::byte, kSize> b) const {
        store_be64(b.subspan<0, 8>(), address);
        store_be32(b.subspan<8, 4>(), rkey.raw);
        store_be32(b.subspan<12, 4>(), length);
    }
    friend constexpr bool operator==(const Reth&, const Reth&) = default;
};

struct AtomicEth {
    std::uint64_t address = 0;
    RKey rkey{};
    std::uint64_t swap_or_add = 0;
    std::uint64_t compare = 0;  // Sent, but without meaning, in a fetch and add.

    static constexpr std::size_t kSize = 28;
    static constexpr AtomicEth parse(std::span<const std::byte, kSize> b) {
        return {.address = load_be64(b.subspan<0, 8>()),
                .rkey = {load_be32(b.subspan<8, 4>())},
                .swap_or_add = load_be64(b.subspan<12, 8>()),
                .compare = load_be64(b.subspan<20, 8>())};
    }
    constexpr void emit(std::span<std::byte, kSize> b) const {
        store_be64(b.subspan<0, 8>(), address);
        store_be32(b.subspan<8, 4>(), rkey.raw);
        store_be64(b.subspan<12, 8>(), swap_or_add);
        store_be64(b.subspan<20, 8>(), compare);
    }
    friend constexpr bool operator==(const AtomicEth&, const AtomicEth&) = default;
};

struct AtomicAckEth {
    std::uint64_t original = 0;  // What the word held before the operation.

    static constexpr std::size_t kSize = 8;
    static constexpr AtomicAckEth parse(std::span<const std::byte, kSize> b) {
        return {.original = load_be64(b)};
    }
    constexpr void emit(std::span<std::byte, kSize> b) const { store_be64(b, original); }
    friend constexpr bool operator==(const AtomicAckEth&, const AtomicAckEth&) = default;
};

struct Deth {
    Qkey qkey{};
    Qpn source{};
    std::uint8_t reserved = 0;

    static constexpr std::size_t kSize = 8;
    static constexpr Deth parse(std::span<const std::byte, kSize> b) {
        return {.qkey = {load_be32(b.subspan<0, 4>())},
                .source = {load_be24(b.subspan<5, 3>())},
                .reserved = load_u8(b.subspan<4, 1>())};
    }
    constexpr void emit(std::span<std::byte, kSize> b) const {
        store_be32(b.subspan<0, 4>(), qkey.raw);
        store_be32(b.subspan<4, 4>(), std::uint32_t{reserved} << 24 | (source.raw & 0xff'ffff));
    }
    friend constexpr bool operator==(const Deth&, const Deth&) = default;
};

struct Xrceth {
    SrqNumber srq{};
    std::uint8_t reserved = 0;

    static constexpr std::size_t kSize = 4;
    static constexpr Xrceth parse(std::span<const std::byte, kSize> b) {
        return {.srq = {load_be24(b.last<3>())}, .reserved = load_u8(b.first<1>())};
    }
    constexpr void emit(std::span<std::byte, kSize> b) const {
        store_be32(b, std::uint32_t{reserved} << 24 | (srq.raw & 0xff'ffff));
    }
    friend constexpr bool operator==(const Xrceth&, const Xrceth&) = default;
};

// FLUSH: how far the data must have got (bit 0 globally visible, bit 1 persistent) and of what (0
// the range in the RETH, 1 the whole region).
struct Feth {
    std::uint8_t placement = 0;    // 4 bits.
    std::uint8_t selectivity = 0;  // 2 bits.
    std::uint32_t reserved = 0;    // 26 bits.

    static constexpr std::size_t kSize = 4;
    static constexpr Feth parse(std::span<const std::byte, kSize> b) {
        const std::uint32_t word = load_be32(b);
        return {.placement = static_cast<std::uint8_t>(word & 0xf),
                .selectivity = static_cast<std::uint8_t>(word >> 4 & 3),
                .reserved = word >> 6};
    }
    constexpr void emit(std::span<std::byte, kSize> b) const {
        store_be32(b, reserved << 6 | (selectivity & 3u) << 4 | (placement & 0xfu));
    }
    friend constexpr bool operator==(const Feth&, const Feth&) = default;
};

}  // namespace feroce::wire
