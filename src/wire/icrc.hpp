// The invariant CRC that ends every packet: CRC-32 over eight bytes of ones, the IP and UDP headers
// and the packet, with each field that a router may change set to ones (IPv4 TOS, TTL, checksum;
// IPv6 class, flow label, hop limit; UDP checksum; the BTH byte with FECN and BECN). It covers the
// IPv4 identification, which a UDP socket neither sets nor shows: senders predict it, receivers try
// the prediction and else solve for it. IPv6 has none, so there all is exact.
// IPv4 headers are taken to be 20 bytes with DF set, not a fragment.
#pragma once

#include <optional>

#include "base/bytes.hpp"
#include "base/gid.hpp"
#include "wire/packet.hpp"

namespace feroce::wire {

inline constexpr std::uint16_t kRocePort = 4791;

// Both addresses IPv4 or both IPv6.
struct DatagramAddress {
    Gid source{};
    Gid destination{};
    std::uint16_t source_port = 0;
    std::uint16_t destination_port = kRocePort;

    friend constexpr bool operator==(const DatagramAddress&, const DatagramAddress&) = default;
};

// Writes the last four bytes of a packet. `ipv4_id` is ignored for IPv6, here and below.
void seal(const DatagramAddress& address, std::uint16_t ipv4_id, ByteSpan udp_payload);

// Seals the segments of one UDP_SEGMENT send, whose ids count from 0; the last may be shorter.
void seal_run(const DatagramAddress& address, ByteSpan bytes, std::size_t segment_size);

bool verify(const DatagramAddress& address, std::uint16_t ipv4_id, ByteView udp_payload);

// The one IPv4 id for which the ICRC holds, if there is one. As a check this is only 16 bits
// strong: random corruption yields some id once in 65,536 cases, so callers must judge the id.
// For IPv6: 0 if the ICRC holds.
std::optional<std::uint16_t> solve_id(const DatagramAddress& address, ByteView udp_payload);

}  // namespace feroce::wire
