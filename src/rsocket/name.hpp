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

    // A link-local address is another one on each interface.
    bool needs_scope() const;

    friend auto operator<=>(const Name&, const Name&) = default;

    std::array<std::byte, 16> address{};
    std::uint16_t port = 0;  // In the machine's order.
    std::uint32_t scope =
        0;  // The interface of a link-local address, which the wire does not have.
};

}  // namespace feroce::rsockets
