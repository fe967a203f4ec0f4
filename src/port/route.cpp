#include "port/route.hpp"

#include <cerrno>

#include "port/address.hpp"
#include "port/fd.hpp"
#include "port/inet_socket.hpp"

namespace feroce::port {

Result<Gid> route_source(const Gid& destination, std::uint32_t scope) {
    constexpr std::uint16_t kAnyPort = 4791;  // Nothing is sent.
    const SocketAddress to = socket_address(destination, kAnyPort, scope);
    const Fd fd = inet_socket(to.any.sa_family);
    if (fd.get() < 0) return Error{errno, "no socket to look up a route with"};
    SocketAddress name;
    name.length = sizeof name.v6;
    if (::connect(fd.get(), &to.any, to.length) != 0 ||
        ::getsockname(fd.get(), &name.any, &name.length) != 0)
        return Error{errno, "the kernel has no route to this address"};
    return name.any.sa_family == AF_INET ? gid_of(name.v4.sin_addr) : gid_of(name.v6.sin6_addr);
}

}  // namespace feroce::port
