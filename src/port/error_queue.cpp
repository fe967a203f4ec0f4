#include "port/error_queue.hpp"

#include <linux/errqueue.h>
#include <linux/filter.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "port/address.hpp"
#include "port/socket_calls.hpp"

namespace feroce::port {
namespace {

// Errors that one call takes out.
constexpr int kErrorsMax = 16;
// What the queue may hold, of the kernel's memory: some ten errors, which quote their packets.
constexpr int kQueueBytes = 16 * 1024;

// Nobody has a reason to send to such a socket. What comes nevertheless takes the errors' room.
void refuse_datagrams(int fd) {
    sock_filter none{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog program{1, &none};
    ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

struct Notice {
    sock_extended_err error;
    SocketAddress offender;  // Who says so.
};

std::optional<Notice> notice_of(msghdr& header) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
        const bool v4 = c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR;
        const bool v6 = c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR;
        if (!v4 && !v6) continue;
        const std::size_t address = v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        Notice out{};
        if (c->cmsg_len < CMSG_LEN(sizeof out.error + address)) continue;
        std::memcpy(&out.error, CMSG_DATA(c), sizeof out.error);
        std::memcpy(&out.offender.v6, CMSG_DATA(c) + sizeof out.error, address);
        return out;
    }
    return std::nullopt;
}

bool is_unreachable(const sock_extended_err& error) {
    if (error.ee_origin == SO_EE_ORIGIN_ICMP)
        return error.ee_type == ICMP_DEST_UNREACH && error.ee_code != ICMP_FRAG_NEEDED;
    return error.ee_origin == SO_EE_ORIGIN_ICMP6 && error.ee_type == ICMP6_DST_UNREACH;
}

bool is_refusal(const sock_extended_err& error) {
    return error.ee_origin == SO_EE_ORIGIN_ICMP ? error.ee_code == ICMP_PORT_UNREACH
                                                : error.ee_code == ICMP6_DST_UNREACH_NOPORT;
}

Gid gid_in(const SocketAddress& address) {
    return address.any.sa_family == AF_INET ? gid_of(address.v4.sin_addr)
                                            : gid_of(address.v6.sin6_addr);
}

std::uint16_t port_of(const SocketAddress& address) {
    return ntohs(address.any.sa_family == AF_INET ? address.v4.sin_port : address.v6.sin6_port);
}

// An error for which the queue had no room waits for the next send, and the socket is ready for it
// until then.
void forget_pending(int fd) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
}

}  // namespace

void queue_errors(int fd, bool v4) {
    set_option(fd, SOL_SOCKET, SO_RCVBUF, kQueueBytes);
    refuse_datagrams(fd);
    if (v4)
        set_option(fd, IPPROTO_IP, IP_RECVERR, 1);
    else
        set_option(fd, IPPROTO_IPV6, IPV6_RECVERR, 1);
}

// Those that ICMP can cause; a full queue and a wrong argument are always the packet's own.
bool may_be_of_another(int error) {
    switch (error) {
        case ECONNREFUSED:
        case EHOSTUNREACH:
        case ENETUNREACH:
        case EHOSTDOWN:
        case ENONET:
        case ENOPROTOOPT:
        case EOPNOTSUPP:
        case EMSGSIZE:
        case EACCES:
        case EPROTO:
            return true;
        default:
            return false;
    }
}

void read_errors(int fd, std::uint16_t port, cm::Suspects& out) {
    for (int i = 0; i < kErrorsMax; ++i) {
        SocketAddress to;  // Where the packet was sent.
        alignas(cmsghdr) char control[512];
        msghdr header{};
        header.msg_name = &to.any;
        header.msg_namelen = sizeof to.v6;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        if (receive_message(fd, header, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return forget_pending(fd);
        const std::optional<Notice> notice = notice_of(header);
        if (!notice || !is_unreachable(notice->error) || port_of(to) != port) continue;
        const bool refused = is_refusal(notice->error) && gid_in(notice->offender) == gid_in(to);
        out.add({gid_in(to), refused});
    }
}

}  // namespace feroce::port
