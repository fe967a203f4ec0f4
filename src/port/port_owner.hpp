// Which user's processes hold a UDP port, by the kernel's own table: a name can be taken by
// anybody, the port itself only by its owner.
#pragma once

#include <cstdint>
#include <optional>

namespace feroce::port {

std::optional<std::uint32_t> owner_of_udp_port(std::uint16_t port);  // None: nobody, or unknown.

// How many sockets of a family (AF_INET, AF_INET6) are bound to that port of the wildcard address,
// whoever has them; none if the table cannot be read.
std::optional<std::uint32_t> wildcard_sockets(int family, std::uint16_t port);

}  // namespace feroce::port
