// Management datagrams: 256 bytes in one UD SEND_ONLY to QP1. The common header is followed by 232
// bytes whose meaning the attribute id gives; wire/cm_messages.hpp has those of the connection
// manager.
#pragma once

#include <array>
#include <optional>

#include "base/bytes.hpp"
#include "base/ids.hpp"

namespace feroce::wire {

inline constexpr std::size_t kMadSize = 256;
inline constexpr Qkey kGeneralServicesQkey{0x8001'0000};  // Well known; QP1 takes no other.

using MadBytes = std::array<std::byte, kMadSize>;

// The attribute ids of the communication management class.
enum class CmAttribute : std::uint16_t {
    Req = 0x10,
    Mra = 0x11,
    Rej = 0x12,
    Rep = 0x13,
    Rtu = 0x14,
    Dreq = 0x15,
    Drep = 0x16,
    SidrReq = 0x17,
    SidrRep = 0x18,
    Lap = 0x19,
    Apr = 0x1a,
    // Not IBTA's: one Feroce asks another whether it still has a connection. Others ignore it.
    Alive = 0xfe0c
};

const char* to_string(CmAttribute attribute);  // "REQ"; "?" for one that is not in the list.

struct MadHeader {
    std::uint8_t base_version = 1;
    std::uint8_t management_class = 7;  // Communication management.
    std::uint8_t class_version = 2;
    std::uint8_t method = 3;  // Send.
    std::uint16_t status = 0;
    std::uint16_t class_specific = 0;
    std::uint64_t transaction = 0;
    std::uint16_t attribute = 0;
    std::uint16_t reserved = 0;
    std::uint32_t modifier = 0;

    static constexpr std::size_t kSize = 24;
    static constexpr MadHeader parse(std::span<const std::byte, kSize> b) {
        return {.base_version = load_u8(b.subspan<0, 1>()),
                .management_class = load_u8(b.subspan<1, 1>()),
                .class_version = load_u8(b.subspan<2, 1>()),
                .method = load_u8(b.subspan<3, 1>()),
                .status = load_be16(b.subspan<4, 2>()),
                .class_specific = load_be16(b.subspan<6, 2>()),
                .transaction = load_be64(b.subspan<8, 8>()),
                .attribute = load_be16(b.subspan<16, 2>()),
                .reserved = load_be16(b.subspan<18, 2>()),
                .modifier = load_be32(b.subspan<20, 4>())};
    }
    constexpr void emit(std::span<std::byte, kSize> b) const {
        store_u8(b.subspan<0, 1>(), base_version);
        store_u8(b.subspan<1, 1>(), management_class);
        store_u8(b.subspan<2, 1>(), class_version);
        store_u8(b.subspan<3, 1>(), method);
        store_be16(b.subspan<4, 2>(), status);
        store_be16(b.subspan<6, 2>(), class_specific);
        store_be64(b.subspan<8, 8>(), transaction);
        store_be16(b.subspan<16, 2>(), attribute);
        store_be16(b.subspan<18, 2>(), reserved);
        store_be32(b.subspan<20, 4>(), modifier);
    }
    friend constexpr bool operator==(const MadHeader&, const MadHeader&) = default;
};

// What the connection manager needs of a datagram to QP1. The views point into the MAD.
struct CmMad {
    CmAttribute attribute{};
    std::uint64_t transaction = 0;
    std::span<const std::byte, kMadSize - MadHeader::kSize> message;
};

// Nothing if this is not a connection manager message of a kind and version that we know.
std::optional<CmMad> parse_cm_mad(ByteView mad);

// The slot of the process that a packet is for: that in its destination QPN, and of a datagram for
// QP1 that in the communication id of its receiver. 0: a request, which has no such id yet, or too
// few bytes. The filter in port/group_socket.cpp says the same to the kernel.
SlotNumber steered_slot(ByteView packet);

}  // namespace feroce::wire
