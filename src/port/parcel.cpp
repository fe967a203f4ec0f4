#include "port/parcel.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "port/port_group.hpp"
#include "port/socket_calls.hpp"

namespace feroce::port {
namespace {

// A zero byte and the five characters of a name that the kernel chose.
constexpr socklen_t kNameBytes = offsetof(sockaddr_un, sun_path) + 6;
// Strangers' parcels that one call throws away before it lets others have a turn.
constexpr int kStrangersMax = 64;

bool comes_from_member(msghdr& message, const PortGroup& group) {
    const cmsghdr* c = CMSG_FIRSTHDR(&message);
    if (c == nullptr || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
        return false;
    ucred sender;
    std::memcpy(&sender, CMSG_DATA(c), sizeof sender);
    return group.has_member(sender);
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
    message.msg_namelen = to == nullptr ? 0 : kNameBytes;
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
    const bool named = ::getsockname(fd.get(), address, &length) == 0 && length == kNameBytes;
    return named ? std::move(fd) : Fd();
}

ByteView receive_from_member(int fd, const PortGroup& group, ByteSpan buffer) {
    for (int i = 0; i < kStrangersMax; ++i) {
        iovec vec{buffer.data(), buffer.size()};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
        msghdr message{};
        message.msg_iov = &vec;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        const long n = receive_message(fd, message, MSG_DONTWAIT);
        if (n < 0) break;
        const auto length = static_cast<std::size_t>(n);
        if (length > sizeof(ParcelHeader) && comes_from_member(message, group))
            return buffer.first(length);
    }
    return {};
}

}  // namespace feroce::port
