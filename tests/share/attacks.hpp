// What an ordinary user tries in order to get at the packets of root's processes, who hold the
// port. Each returns how often it worked, which should be never.
#pragma once

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "port/address.hpp"
#include "port/fd.hpp"
#include "port/parcel.hpp"
#include "port/port_group.hpp"
#include "port/relay_server.hpp"

namespace feroce::share {

inline constexpr std::uint16_t kPort = 4791;

inline Gid loopback_v4(std::uint32_t last) {
    return Gid::from_v4(0x7f00'0000 | last);
}

// Sockets of his own on the port, by every address and option.
inline int try_to_bind() {
    Gid any_v6, loopback_v6;
    loopback_v6.raw[15] = 1;
    int bound = 0;
    for (const Gid& gid : {Gid::from_v4(0), loopback_v4(1), loopback_v4(2), any_v6, loopback_v6}) {
        for (unsigned options = 0; options < 8; ++options) {
            const port::Fd fd(::socket(gid.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM, 0));
            const int on = 1;
            if ((options & 1) != 0)
                ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            if ((options & 2) != 0)
                ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
            sock_filter take_all[] = {{BPF_RET | BPF_K, 0, 0, 0}};
            const sock_fprog program{1, take_all};
            if ((options & 4) != 0)
                ::setsockopt(fd.get(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program,
                             sizeof program);
            const port::SocketAddress address = port::socket_address(gid, kPort, 0);
            if (::bind(fd.get(), &address.any, address.length) == 0) ++bound;
        }
    }
    return bound;
}

// By the door through which root's own newcomers get the group's sockets.
inline int try_to_join() {
    int stolen = 0;
    for (int i = 0; i < 4; ++i) {
        const Result<port::Fd> connection = port::connect_to_group(kPort, 0);
        if (!connection) continue;
        char byte = 0;
        iovec vec{&byte, 1};
        alignas(cmsghdr) char control[4096];
        msghdr message{};
        message.msg_iov = &vec;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        if (::recvmsg(connection->get(), &message, 0) <= 0) continue;
        const cmsghdr* rights = CMSG_FIRSTHDR(&message);
        if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) ++stolen;
    }
    return stolen;
}

// As a guest who asks for slots that are root's, and for more than his share.
inline int try_to_sit_on_roots_slots() {
    int wrong = 0;
    std::vector<port::Fd> seats;
    for (std::uint32_t wish = 0; wish < port::kSlots; ++wish) {
        Result<port::Fd> connection = port::connect_to_group(kPort, 0);
        if (!connection) continue;
        const port::GuestMessage ask{.kind = port::GuestMessage::Kind::Ask, .slot = wish};
        port::GuestMessage answer;
        ::send(connection->get(), &ask, sizeof ask, MSG_NOSIGNAL);
        if (::recv(connection->get(), &answer, sizeof answer, 0) != sizeof answer) continue;
        if (answer.refusal != 0) continue;
        if (!port::is_guest_slot(answer.slot)) ++wrong;
        seats.push_back(std::move(*connection));
    }
    return seats.empty() || seats.size() > port::kSeatsPerUser ? wrong + 1 : wrong;
}

// Packets to root's processes past the UDP port, by the sockets through which they hand over.
inline void forge_parcels(std::uint32_t qpn) {
    const port::Fd fd(::socket(AF_UNIX, SOCK_DGRAM, 0));
    std::FILE* names = std::fopen("/proc/thread-self/net/unix", "re");
    char line[512];
    while (names != nullptr && std::fgets(line, sizeof line, names) != nullptr) {
        const char* at = std::strchr(line, '@');
        if (at == nullptr || std::strlen(at + 1) != 6) continue;  // Five characters and the line's.
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        std::memcpy(name.sun_path + 1, at + 1, 5);
        std::array<std::byte, 64> packet{};
        packet[5] = static_cast<std::byte>(qpn >> 16);
        packet[6] = static_cast<std::byte>(qpn >> 8);
        packet[7] = static_cast<std::byte>(qpn);
        device::Datagram datagram;
        datagram.bytes = packet;
        datagram.source = datagram.destination = loopback_v4(1);
        for (int i = 0; i < 20; ++i) port::send_parcel(fd.get(), &name, datagram, 0);
    }
    if (names != nullptr) std::fclose(names);
}

inline void flood(std::uint32_t qpn, int packets) {
    const port::Fd fd(::socket(AF_INET, SOCK_DGRAM, 0));
    const port::SocketAddress to = port::socket_address(loopback_v4(1), kPort, 0);
    std::array<std::byte, 1024> packet{};
    packet[5] = static_cast<std::byte>(qpn >> 16);
    packet[6] = static_cast<std::byte>(qpn >> 8);
    packet[7] = static_cast<std::byte>(qpn);
    for (int i = 0; i < packets; ++i)
        (void)::sendto(fd.get(), packet.data(), packet.size(), 0, &to.any, to.length);
}

// Knocks at the door and goes away.
inline void flood_the_door(int times) {
    for (int i = 0; i < times; ++i) (void)port::connect_to_group(kPort, 0);
}

}  // namespace feroce::share
