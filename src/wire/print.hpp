// One readable line per packet, for traces and for messages that explain a failure.
#pragma once

#include <string>

#include "wire/packet.hpp"

namespace feroce::wire {

std::string to_string(Syndrome syndrome);  // "ACK", "RNR NAK, wait 0.64 ms", "NAK sequence error".

// RC_WRITE_ONLY qpn 0x000011 psn 1011114 ack-request va 0x... rkey 0x... length 64 payload 64
std::string describe(const Packet& packet);

}  // namespace feroce::wire
