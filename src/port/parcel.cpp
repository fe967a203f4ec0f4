#include "port/parcel.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "port/port_group.hpp"
#include "port/socket_calls.hpp"

namespace feroce::port {
namespace {

// Strangers' parcels that one call throws away before it lets others have a turn.
constexpr int kStrangersMax = 64;

// Who sent a message, and the first descriptor that came with it.
struct Sender {
    std::optional<ucred> process;
    Fd attached;
};

Sender sender_of(msghdr& message) {
    Sender out;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET) continue;
        if (c->cmsg_type == SCM_CREDENTIALS) {
            std::memcpy(&out.process.emplace(), CMSG_DATA(c), sizeof(ucred));
        } else if (c->cmsg_type == SCM_RIGHTS) {
            // The kernel fills what room there is: more than one may have come.
            for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
                int raw;
                std::memcpy(&raw, reinterpret_cast<const char*>(c) + at, sizeof raw);
                Fd fd(raw);
                if (!out.attached.valid()) out.attached = std::move(fd);
            }
        }
    }
    return out;
}

}  // namespace

bool is_for_general_services(ByteView packet) {
    constexpr std::array<std::byte, 3> kOne{std::byte{0}, std::byte{0}, std::byte{1}};
    return packet.size() >= 8 && std::equal(kOne.begin(), kOne.end(), packet.begin() + 5);
}

ParcelHeader parcel_header(const device::Datagram& datagram, std::size_t segment_size) {
    return {datagram.source,      datagram.destination,
            datagram.source_port, static_cast<std::uint16_t>(segment_size),
            datagram.id_hint,     datagram.traffic_class,
            datagram.hop_limit};
}

bool send_parcel(int fd, const sockaddr_un* to, const device::Datagram& datagram,
                 std::size_t segment_size) {
    ParcelHeader header = parcel_header(datagram, segment_size);
    // The kernel reads what these point to, and no more.
    iovec vecs[2] = {{&header, sizeof header},
                     {const_cast<std::byte*>(datagram.bytes.data()), datagram.bytes.size()}};
    msghdr message{};
    message.msg_name = const_cast<sockaddr_un*>(to);
    message.msg_namelen = to == nullptr ? 0 : kParcelNameBytes;
    message.msg_iov = vecs;
    message.msg_iovlen = 2;
    return send_message(fd, message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

Fd make_parcel_socket(sockaddr_un& name) {
    Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    name = {};
    name.sun_family = AF_UNIX;
    auto* address = reinterpret_cast<sockaddr*>(&name);
    socklen_t length = sizeof name.sun_family;  // No name: the kernel picks one.
    if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        ::bind(fd.get(), address, length) != 0)
        return Fd();
    length = sizeof name;
    const bool named = ::getsockname(fd.get(), address, &length) == 0 && length == kParcelNameBytes;
    return named ? std::move(fd) : Fd();
}

ByteView receive_from_member(int fd, const PortGroup& group, ByteSpan buffer, Fd* attached) {
    for (int i = 0; i < kStrangersMax; ++i) {
        iovec vec{buffer.data(), buffer.size()};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int))];
        msghdr message{};
        message.msg_iov = &vec;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = attached != nullptr ? sizeof control : CMSG_SPACE(sizeof(ucred));
        const long n = receive_message(fd, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0) break;
        Sender sender = sender_of(message);
        if (n == 0 || !sender.process || !group.has_member(*sender.process)) continue;
        if (attached != nullptr && sender.process->uid == group.user())
            *attached = std::move(sender.attached);
        return buffer.first(static_cast<std::size_t>(n));
    }
    return {};
}

}  // namespace feroce::port
