#include "rsocket/name.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace feroce::rsockets {
namespace {

constexpr std::size_t kV4At = 12;  // In the mapped form, behind ten zeros and two 0xff.

}  // namespace

Name Name::v4(std::span<const std::byte, 4> address, std::uint16_t port) {
    Name name;
    name.address[10] = name.address[11] = std::byte{0xff};
    std::copy(address.begin(), address.end(), name.address.begin() + kV4At);
    name.port = port;
    return name;
}

Result<Name> Name::of(const sockaddr* address, socklen_t length) {
    if (address == nullptr || length < sizeof(sockaddr_in)) return Error{EINVAL, "no address"};
    if (address->sa_family == AF_INET) {
        sockaddr_in in{};
        std::memcpy(&in, address, sizeof in);
        return v4(std::as_bytes(std::span(&in.sin_addr, 1)).first<4>(), ntohs(in.sin_port));
    }
    if (address->sa_family != AF_INET6)
        return Error{EAFNOSUPPORT, "rsockets have IPv4 and IPv6 addresses"};
    if (length < sizeof(sockaddr_in6)) return Error{EINVAL, "the address is cut off"};
    sockaddr_in6 in6{};
    std::memcpy(&in6, address, sizeof in6);
    Name name;
    std::memcpy(name.address.data(), &in6.sin6_addr, name.address.size());
    name.port = ntohs(in6.sin6_port);
    if (name.needs_scope()) name.scope = in6.sin6_scope_id;  // The kernel ignores others.
    return name;
}

bool Name::is_v4() const {
    const auto zero = [](std::byte b) { return b == std::byte{0}; };
    return std::all_of(address.begin(), address.begin() + 10, zero) &&
           address[10] == std::byte{0xff} && address[11] == std::byte{0xff};
}

bool Name::is_any() const {
    const ByteView bytes = is_v4() ? ByteView(v4_bytes()) : ByteView(address);
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

bool Name::needs_scope() const {
    const auto first = std::to_integer<unsigned>(address[0]);
    const auto second = std::to_integer<unsigned>(address[1]);
    if (first == 0xff) return (second & 0xf) == 1 || (second & 0xf) == 2;  // Multicast.
    return first == 0xfe && (second & 0xc0) == 0x80;
}

sockaddr_storage Name::as(int family) const {
    sockaddr_storage out{};
    if (family == AF_INET) {
        sockaddr_in in{};
        in.sin_family = AF_INET;
        in.sin_port = htons(port);
        std::memcpy(&in.sin_addr, v4_bytes().data(), sizeof in.sin_addr);
        std::memcpy(&out, &in, sizeof in);
        return out;
    }
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    in6.sin6_scope_id = scope;
    std::memcpy(&in6.sin6_addr, address.data(), address.size());
    std::memcpy(&out, &in6, sizeof in6);
    return out;
}

}  // namespace feroce::rsockets
