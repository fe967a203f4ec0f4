// Which user's processes hold a UDP port, by the kernel's own table: a name can be taken by
// anybody, the port itself only by its owner.
#pragma once

#include <cstdint>
#include <optional>

namespace feroce::port {

std::optional<std::uint32_t> owner_of_udp_port(std::uint16_t port);  // None: nobody, or unknown.

}  // namespace feroce::port
