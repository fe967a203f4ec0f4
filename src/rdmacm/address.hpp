// Socket addresses and Gids.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "base/gid.hpp"
#include "rdmacm/abi.hpp"

namespace feroce::rdmacm {

struct Endpoint {
    Gid address;
    std::uint16_t port = 0;
};

inline ibv_gid gid_to_ibv(const Gid& gid) {
    ibv_gid out;
    std::memcpy(out.raw, gid.raw.data(), sizeof out.raw);
    return out;
}

// A wildcard is Gid::from_v4(0) or the zero Gid.
inline bool is_wildcard(const Gid& gid) {
    return gid.is_zero() || gid == Gid::from_v4(0);
}

inline bool is_link_local(const Gid& gid) {
    return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

// The loopback address of the family.
inline Gid loopback_like(const Gid& gid) {
    Gid out = Gid::from_v4(INADDR_LOOPBACK);
    if (!gid.is_v4()) std::memcpy(out.raw.data(), &in6addr_loopback, out.raw.size());
    return out;
}

inline std::optional<Endpoint> endpoint_of(const sockaddr* address) {
    if (address->sa_family == AF_INET) {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
        return Endpoint{Gid::from_v4(ntohl(v4->sin_addr.s_addr)), ntohs(v4->sin_port)};
    }
    if (address->sa_family != AF_INET6) return std::nullopt;
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    Endpoint out{{}, ntohs(v6->sin6_port)};
    std::memcpy(out.address.raw.data(), &v6->sin6_addr, out.address.raw.size());
    return out;
}

inline void store_address(const Gid& gid, std::uint16_t port, sockaddr_storage& out) {
    std::memset(&out, 0, sizeof out);
    if (gid.is_v4()) {
        auto& v4 = reinterpret_cast<sockaddr_in&>(out);
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
        v4.sin_addr.s_addr = htonl(gid.v4());
        return;
    }
    auto& v6 = reinterpret_cast<sockaddr_in6&>(out);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, gid.raw.data(), gid.raw.size());
}

// Family-independent: both sockaddrs have the port at the same place.
inline std::uint16_t port_in(const sockaddr_storage& address) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace feroce::rdmacm
