#include "port/group_socket.hpp"

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <array>

#include "base/ids.hpp"
#include "port/inet_socket.hpp"
#include "port/socket_calls.hpp"

// In <linux/udp.h>, which cannot be included beside <netinet/udp.h>.
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

namespace feroce::port {
namespace {

// What the kernel grants as the limit is enough for a window of 2 MiB from one peer.
constexpr int kReceiveBufferBytes = 4 * 1024 * 1024;

void set_v4_options(int fd) {
    set_option(fd, IPPROTO_IP, IP_PKTINFO, 1);
    set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
    // Only groups that this socket joined itself, not those that any process joined.
    set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
}

void set_v6_options(int fd) {
    set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
    // rxe sends checksum 0, which IPv6 sockets drop unless told not to.
    set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
}

}  // namespace

Fd make_group_socket(int family) {
    Fd fd = inet_socket(family, SOCK_NONBLOCK);
    if (!fd.valid() || !set_option(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1)) return Fd();
    // The rest is for speed and counting; without it things still work.
    set_option(fd.get(), SOL_SOCKET, SO_RCVBUF, kReceiveBufferBytes);
    set_option(fd.get(), SOL_SOCKET, SO_RXQ_OVFL, 1);
    set_option(fd.get(), IPPROTO_UDP, UDP_GRO, 1);
    if (family == AF_INET) {
        set_v4_options(fd.get());
    } else {
        set_v6_options(fd.get());
    }
    return fd;
}

bool bind_group_socket(int fd, int family, std::uint16_t port) {
    if (family == AF_INET) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

bool attach_steering(int fd) {
    // Offsets count from the BTH. Opcode-independent: the destination QPN stands at 5..7. In a MAD
    // of QP1 the attribute id stands at 36, the local communication id (SIDR: request id) at 44,
    // the remote one at 48; attribute 0x10 is REQ, 0x17 SIDR_REQ, 0x18 SIDR_REP. A load past the
    // end of a short datagram ends the program with 0, a slot that nobody serves with data.
    constexpr std::uint16_t kLoadWord = BPF_LD | BPF_W | BPF_ABS;
    constexpr std::uint16_t kLoadHalf = BPF_LD | BPF_H | BPF_ABS;
    constexpr std::uint16_t kShiftRight = BPF_ALU | BPF_RSH | BPF_K;
    constexpr std::uint16_t kJumpEqual = BPF_JMP | BPF_JEQ | BPF_K;
    constexpr std::uint16_t kReturn = BPF_RET | BPF_K;
    constexpr std::uint16_t kReturnA = BPF_RET | BPF_A;
    std::array<sock_filter, 16> program{{
        {kLoadWord, 0, 0, 4},
        {BPF_ALU | BPF_AND | BPF_K, 0, 0, 0x00ff'ffff},
        {kJumpEqual, 2, 0, 1},
        {kShiftRight, 0, 0, kQpnLowBits},
        {kReturnA, 0, 0, 0},
        {kLoadHalf, 0, 0, 36},
        {kJumpEqual, 8, 0, 0x10},
        {kJumpEqual, 7, 0, 0x17},
        {kJumpEqual, 0, 3, 0x18},
        {kLoadWord, 0, 0, 44},
        {kShiftRight, 0, 0, kCommIdLowBits},
        {kReturnA, 0, 0, 0},
        {kLoadWord, 0, 0, 48},
        {kShiftRight, 0, 0, kCommIdLowBits},
        {kReturnA, 0, 0, 0},
        {kReturn, 0, 0, 0},
    }};
    const sock_fprog code{static_cast<unsigned short>(program.size()), program.data()};
    return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &code, sizeof code) == 0;
}

void drain(int fd) {
    char byte;
    // More datagrams than this do not fit a receive buffer; more are fresh arrivals.
    for (int i = 0; i < 65536; ++i)
        if (::recv(fd, &byte, 1, MSG_TRUNC) < 0) return;
}

}  // namespace feroce::port
