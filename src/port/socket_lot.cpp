#include "port/socket_lot.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace feroce::port {
namespace {

constexpr std::size_t kChunkFds = 2 * kChunkSlots;

// A message that carries descriptors must carry a byte, too.
struct LotMessage {
    char byte = 0;
    iovec vec{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(kChunkFds * sizeof(int))] = {};
    msghdr header{};

    LotMessage() {
        header.msg_iov = &vec;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
    }
    LotMessage(const LotMessage&) = delete;
    LotMessage& operator=(const LotMessage&) = delete;
};

// What has come; those beyond are closed.
std::size_t take_fds(msghdr& header, std::array<Fd, kChunkFds>& out) {
    const cmsghdr* rights = CMSG_FIRSTHDR(&header);
    if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return 0;
    const std::size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
        int raw;
        std::memcpy(&raw, CMSG_DATA(rights) + i * sizeof raw, sizeof raw);
        out[i] = Fd(raw);
    }
    return count;
}

}  // namespace

Fd make_lot() {
    Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    auto* address = reinterpret_cast<sockaddr*>(&name);
    socklen_t length = sizeof name.sun_family;  // No name: the kernel picks one.
    if (!fd.valid() || ::bind(fd.get(), address, length) != 0) return Fd();
    length = sizeof name;
    if (::getsockname(fd.get(), address, &length) != 0 || ::connect(fd.get(), address, length) != 0)
        return Fd();
    return fd;
}

bool park(int lot, const ChunkSockets& sockets) {
    std::array<int, kChunkFds> fds;
    std::size_t count = 0;
    for (const Fd& fd : sockets.v4) fds[count++] = fd.get();
    for (const Fd& fd : sockets.v6)
        if (fd.valid()) fds[count++] = fd.get();
    LotMessage message;
    cmsghdr* rights = CMSG_FIRSTHDR(&message.header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    message.header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), count * sizeof(int));
    return ::sendmsg(lot, &message.header, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

bool is_empty(int lot) {
    char byte;
    return ::recv(lot, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1;
}

std::optional<SlotSockets> look_up(int lot, std::uint32_t number) {
    LotMessage message;
    if (::recvmsg(lot, &message.header, MSG_PEEK | MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1)
        return std::nullopt;
    std::array<Fd, kChunkFds> fds;
    const std::size_t count = take_fds(message.header, fds);
    // With too few descriptors left the kernel gives as many as there are.
    const bool cut = (message.header.msg_flags & MSG_CTRUNC) != 0;
    if (cut || (count != kChunkSlots && count != kChunkFds)) {
        errno = EMFILE;
        return std::nullopt;
    }
    return SlotSockets{std::move(fds[number]),
                       count == kChunkFds ? std::move(fds[kChunkSlots + number]) : Fd()};
}

}  // namespace feroce::port
