// Name: an address and a port of a datagram's sender or receiver. IPv4 has its mapped IPv6 form, so
// that the address of either family is also a GID.
#pragma once

#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace feroce::rsockets {

struct Name {
    static Name v4(std::span<const std::byte, 4> address, std::uint16_t port);
    static Result<Name> of(const sockaddr* address, socklen_t length);

    bool is_v4() const;
    bool is_any() const;
    std::span<const std::byte, 4> v4_bytes() const { return std::span(address).last<4>(); }
    // For a socket of the family; IPv4 is mapped where that is IPv6.
    sockaddr_storage as(int family) const;

    // The scope is no part of a name: the wire does not have it.
    friend auto operator<=>(const Name& a, const Name& b) {
        if (const auto order = a.address <=> b.address; order != 0) return order;
        return a.port <=> b.port;
    }
    friend bool operator==(const Name& a, const Name& b) {
        return a.address == b.address && a.port == b.port;
    }

    std::array<std::byte, 16> address{};
    std::uint16_t port = 0;   // In the machine's order.
    std::uint32_t scope = 0;  // The interface of a link-local address.
};

}  // namespace feroce::rsockets
