// What the RDMA connection manager puts on top of the InfiniBand one: service ids made of a port
// space and a port, and a header of 36 bytes at the front of the private data of REQ and SIDR_REQ
// that carries the IP addresses.
#pragma once

#include <algorithm>

#include "wire/cm_messages.hpp"

namespace feroce::wire {

// As in <rdma/rdma_cma.h>.
enum class PortSpace : std::uint16_t { IpOverIb = 0x0002, Tcp = 0x0106, Udp = 0x0111, Ib = 0x013f };

constexpr ServiceId make_service_id(PortSpace space, std::uint16_t port) {
    return {std::uint64_t{static_cast<std::uint16_t>(space)} << 16 | port};
}
constexpr std::optional<PortSpace> port_space_of(ServiceId id) {
    for (const PortSpace space :
         {PortSpace::IpOverIb, PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib})
        if (id.raw >> 16 == static_cast<std::uint16_t>(space)) return space;
    return std::nullopt;
}
constexpr std::uint16_t port_of(ServiceId id) {
    return static_cast<std::uint16_t>(id.raw);
}

constexpr bool is_loopback(const Gid& address) {
    if (address.is_v4()) return address.v4() >> 24 == 127;
    Gid last;
    last.raw[15] = 1;
    return address == last;
}

struct CmaHeader {
    std::uint8_t version = 0;     // Major and minor; there is only 0.
    std::uint8_t ip_version = 4;  // 4 bits: 4 or 6.
    std::uint8_t reserved = 0;    // 4 bits.
    std::uint16_t source_port = 0;
    // As 16 bytes on the wire; an IPv4 address stands in the last four and the others are zero,
    // which is not how a Gid writes it. source() and destination() give what a Gid holds.
    Gid source_field{};
    Gid destination_field{};

    static constexpr std::size_t kSize = 36;

    static constexpr CmaHeader make(const Gid& source, const Gid& destination,
                                    std::uint16_t source_port) {
        const bool v4 = destination.is_v4();
        return {.ip_version = static_cast<std::uint8_t>(v4 ? 4 : 6),
                .source_port = source_port,
                .source_field = v4 ? field_of_v4(source) : source,
                .destination_field = v4 ? field_of_v4(destination) : destination};
    }
    static constexpr CmaHeader parse(std::span<const std::byte, kSize> b) {
        CmaHeader h{.version = load_u8(b.subspan<0, 1>()),
                    .ip_version = static_cast<std::uint8_t>(byte_at(b, 1) >> 4),
                    .reserved = static_cast<std::uint8_t>(byte_at(b, 1) & 0xf),
                    .source_port = load_be16(b.subspan<2, 2>())};
        for (std::size_t i = 0; i < 16; ++i) {
            h.source_field.raw[i] = static_cast<std::uint8_t>(byte_at(b, 4 + i));
            h.destination_field.raw[i] = static_cast<std::uint8_t>(byte_at(b, 20 + i));
        }
        return h;
    }
    constexpr void emit(std::span<std::byte, kSize> b) const {
        store_u8(b.subspan<0, 1>(), version);
        b[1] = static_cast<std::byte>((ip_version & 0xf) << 4 | (reserved & 0xf));
        store_be16(b.subspan<2, 2>(), source_port);
        for (std::size_t i = 0; i < 16; ++i) {
            b[4 + i] = std::byte{source_field.raw[i]};
            b[20 + i] = std::byte{destination_field.raw[i]};
        }
    }
    constexpr bool valid() const { return version == 0 && (ip_version == 4 || ip_version == 6); }
    constexpr Gid source() const { return address(source_field); }
    constexpr Gid destination() const { return address(destination_field); }
    friend constexpr bool operator==(const CmaHeader&, const CmaHeader&) = default;

private:
    static constexpr Gid field_of_v4(const Gid& gid) {
        Gid field;
        std::copy(gid.raw.begin() + 12, gid.raw.end(), field.raw.begin() + 12);
        return field;
    }
    constexpr Gid address(const Gid& field) const {
        if (ip_version != 4) return field;
        Gid gid = Gid::from_v4(0);
        std::copy(field.raw.begin() + 12, field.raw.end(), gid.raw.begin() + 12);
        return gid;
    }
};

// The address that the sender of a REQ or SIDR_REQ named to its rdma_cm. It is that of the datagram
// but for one case: a program that asks for a loopback address of its own machine may reach it
// through a device that has none, from and to that device's address.
Gid named_address(const Gid& source, const Gid& destination, const CmMad& request);

}  // namespace feroce::wire
