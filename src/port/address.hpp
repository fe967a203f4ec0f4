// Gid <-> sockaddr. A link-local IPv6 address needs its interface's index to be sent to.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>

#include "base/gid.hpp"

namespace feroce::port {

struct SocketAddress {
    union {
        sockaddr any;
        sockaddr_in v4;
        sockaddr_in6 v6;
    };
    socklen_t length = 0;

    SocketAddress() { std::memset(&v6, 0, sizeof v6); }
};

inline bool is_link_local(const Gid& gid) {
    return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

inline SocketAddress socket_address(const Gid& gid, std::uint16_t port, std::uint32_t scope) {
    SocketAddress out;
    if (gid.is_v4()) {
        out.v4.sin_family = AF_INET;
        out.v4.sin_port = htons(port);
        out.v4.sin_addr.s_addr = htonl(gid.v4());
        out.length = sizeof out.v4;
        return out;
    }
    out.v6.sin6_family = AF_INET6;
    out.v6.sin6_port = htons(port);
    std::memcpy(&out.v6.sin6_addr, gid.raw.data(), gid.raw.size());
    if (is_link_local(gid) || gid.is_multicast()) out.v6.sin6_scope_id = scope;
    out.length = sizeof out.v6;
    return out;
}

inline Gid gid_of(const in_addr& address) {
    return Gid::from_v4(ntohl(address.s_addr));
}

inline Gid gid_of(const in6_addr& address) {
    Gid gid;
    std::memcpy(gid.raw.data(), &address, gid.raw.size());
    return gid;
}

}  // namespace feroce::port
