// Parcels: packets that reach a process by a unix socket, because they landed in another member's
// socket (hand-over), or because the process belongs to another user than the port does (relay). A
// parcel is what the kernel told with the datagram, then its bytes, as merged by UDP_GRO.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "device/port.hpp"
#include "port/fd.hpp"

namespace feroce::port {

class PortGroup;

struct ParcelHeader {
    Gid source;
    Gid destination;
    std::uint16_t source_port = 0;
    std::uint16_t segment_size = 0;  // 0: one packet.
    std::uint16_t id_hint = 0;       // Of the first packet.
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
};

inline constexpr std::size_t kParcelMax = sizeof(ParcelHeader) + 65536;
// Of the address of a parcel socket: a zero byte and the five characters that the kernel chose.
inline constexpr socklen_t kParcelNameBytes = offsetof(sockaddr_un, sun_path) + 6;

bool is_for_general_services(ByteView packet);  // Destination QPN 1.

ParcelHeader parcel_header(const device::Datagram& datagram, std::size_t segment_size);

// To a connected socket, or to `to`. False with errno if it does not leave at once.
bool send_parcel(int fd, const sockaddr_un* to, const device::Datagram& datagram,
                 std::size_t segment_size);

// A datagram socket with a name that the kernel chose, which knows who sends to it.
Fd make_parcel_socket(sockaddr_un& name);
// One message off such a socket, empty if there is none. Anybody can send to a unix name: what does
// not come from a member of the group is thrown away. A descriptor that came with it goes to
// `attached`, if its sender still is of the group's user; null: none is taken.
ByteView receive_from_member(int fd, const PortGroup& group, ByteSpan buffer, Fd* attached);

}  // namespace feroce::port
