// Bth: the base transport header, first in every packet. Keeps the reserved bits, so that a packet
// that was parsed re-emits byte for byte.
#pragma once

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/psn.hpp"
#include "wire/opcode.hpp"

namespace feroce::wire {

struct Bth {
    Opcode opcode = Opcode::RcSendOnly;
    bool solicited = false;
    bool migrated = false;
    std::uint8_t pad_count = 0;          // 2 bits.
    std::uint8_t transport_version = 0;  // 4 bits.
    Pkey pkey = kDefaultPkey;
    bool fecn = false;
    bool becn = false;
    std::uint8_t reserved6 = 0;  // Shares a byte with FECN and BECN, which the ICRC leaves out.
    Qpn destination{};
    bool ack_request = false;
    std::uint8_t reserved7 = 0;
    Psn psn{};

    static constexpr std::size_t kSize = 12;
    static constexpr Bth parse(std::span<const std::byte, kSize> b) {
        const std::uint32_t flags = byte_at(b, 1), congestion = byte_at(b, 4), ack = byte_at(b, 8);
        return {.opcode = static_cast<Opcode>(byte_at(b, 0)),
                .solicited = (flags & 0x80) != 0,
                .migrated = (flags & 0x40) != 0,
                .pad_count = static_cast<std::uint8_t>(flags >> 4 & 3),
                .transport_version = static_cast<std::uint8_t>(flags & 0xf),
                .pkey = {load_be16(b.subspan<2, 2>())},
                .fecn = (congestion & 0x80) != 0,
                .becn = (congestion & 0x40) != 0,
                .reserved6 = static_cast<std::uint8_t>(congestion & 0x3f),
                .destination = {load_be24(b.subspan<5, 3>())},
                .ack_request = (ack & 0x80) != 0,
                .reserved7 = static_cast<std::uint8_t>(ack & 0x7f),
                .psn = Psn(load_be24(b.subspan<9, 3>()))};
    }
    constexpr void emit(std::span<std::byte, kSize> b) const {
        // Three whole words: what one register holds is one store.
        store_be32(b.subspan<0, 4>(), std::uint32_t{static_cast<std::uint8_t>(opcode)} << 24 |
                                          std::uint32_t{solicited} << 23 |
                                          std::uint32_t{migrated} << 22 | (pad_count & 3u) << 20 |
                                          (transport_version & 0xfu) << 16 | pkey.raw);
        store_be32(b.subspan<4, 4>(), std::uint32_t{fecn} << 31 | std::uint32_t{becn} << 30 |
                                          (reserved6 & 0x3fu) << 24 |
                                          (destination.raw & 0xff'ffff));
        store_be32(b.subspan<8, 4>(),
                   std::uint32_t{ack_request} << 31 | (reserved7 & 0x7fu) << 24 | psn.raw());
    }
    friend constexpr bool operator==(const Bth&, const Bth&) = default;
};

}  // namespace feroce::wire
