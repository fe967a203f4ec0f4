#include "port/table_changes.hpp"

#include <linux/netlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "port/socket_calls.hpp"

namespace feroce::port {
namespace {

// Few are kept for a reader that comes seldom: one that lost some is told that it did (ENOBUFS).
constexpr int kReceiveBytes = 16 * 1024;

}  // namespace

Fd open_table_changes(std::span<const int> groups) {
    Fd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    const bool bound = fd.valid() && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                                            sizeof address) == 0;
    if (!bound) return {};
    set_option(fd.get(), SOL_SOCKET, SO_RCVBUF, kReceiveBytes);
    for (const int group : groups) set_option(fd.get(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group);
    return fd;
}

bool take_table_changes(int fd) {
    char byte;
    bool any = false;
    while (fd >= 0 && (::recv(fd, &byte, 1, MSG_TRUNC) > 0 || errno == ENOBUFS)) any = true;
    return any;
}

}  // namespace feroce::port
