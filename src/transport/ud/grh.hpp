// The 40 bytes in front of a received datagram: an IPv6 header, or for IPv4 twenty zero bytes and
// an IPv4 header. Programs tell them apart by the version nibbles and by a correct IPv4 checksum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "base/gid.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::transport {

// A datagram's receive starts with this many bytes for the network header, IPv6 or IPv4.
inline constexpr std::uint32_t kGrhBytes = 40;

// The header as it stood before a UDP payload of so many bytes (BTH to ICRC). What a socket does
// not show is filled in with what the peer most likely sent: flow label 0, identification 0, DF.
std::array<std::byte, kGrhBytes> make_grh(const Arrival& arrival, std::size_t udp_payload_bytes);

struct GrhAddresses {
    Gid source;
    Gid destination;
    std::uint8_t traffic_class = 0;
};

// What such a header says, IPv6 or IPv4.
GrhAddresses read_grh(std::span<const std::byte, kGrhBytes> header);

}  // namespace feroce::transport
