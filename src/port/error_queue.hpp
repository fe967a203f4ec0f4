// The error queue of a socket that packets leave through (IP_RECVERR): what ICMP says of them.
// Nothing of it is believed: it names peers to ask.
#pragma once

#include <cstdint>

#include "cm/suspects.hpp"

namespace feroce::port {

// From now on errors are queued. The kernel also keeps the last one for the next send on this
// socket, to any peer, and does not send it: see may_be_of_another().
void queue_errors(int fd, bool v4);

// Whether a send may have failed for a packet that was sent before. Then it is tried again, which
// tells.
bool may_be_of_another(int error);

// Takes errors out, a few at a time: a flood must not keep the caller. Peers whose `port` could not
// be reached are added.
void read_errors(int fd, std::uint16_t port, cm::Suspects& out);

}  // namespace feroce::port
