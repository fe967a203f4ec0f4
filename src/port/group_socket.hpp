// The sockets of a port group, all alike, and the filter that steers between them.
#pragma once

#include <cstdint>

#include "port/fd.hpp"

namespace feroce::port {

// An unbound group socket with all options set; invalid if the family is missing.
Fd make_group_socket(int family);

// Binds to the wildcard address. The first socket of a group must bind before it shares: bind it
// exclusively, so that it fails while anything else holds the port.
bool bind_group_socket(int fd, int family, std::uint16_t port);

// Steers by the slot in the BTH destination QPN; QP1 datagrams (connection management)
// go by the slot in their communication id, requests to slot 0.
bool attach_steering(int fd);

// Throws away what is queued, at most what a receive buffer can hold.
void drain(int fd);

}  // namespace feroce::port
