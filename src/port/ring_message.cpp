#include "port/ring_message.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "port/socket_calls.hpp"

namespace feroce::port {

std::optional<RingMessage> parse_ring_message(ByteView bytes) {
    RingMessage out;
    if (bytes.size() != sizeof out) return std::nullopt;
    std::memcpy(&out, bytes.data(), sizeof out);
    const bool known = out.kind == RingMessage::Kind::Offer ||
                       out.kind == RingMessage::Kind::Acceptance ||
                       out.kind == RingMessage::Kind::Tie;
    if (out.magic != RingMessage::kMagic || !known || !is_member_slot(out.from))
        return std::nullopt;
    return out;
}

bool send_ring_message(int socket, const SlotTable& table, std::uint32_t to,
                       const RingMessage& message, int attached) {
    sockaddr_un name;
    if (!table.parcel_name(to, name)) return false;
    RingMessage copy = message;
    iovec vec{&copy, sizeof copy};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof attached)] = {};
    msghdr header{};
    header.msg_name = &name;
    header.msg_namelen = kParcelNameBytes;
    header.msg_iov = &vec;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof attached);
    std::memcpy(CMSG_DATA(rights), &attached, sizeof attached);
    return send_message(socket, header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

}  // namespace feroce::port
