#include "port/relay_seat.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "port/clock.hpp"
#include "port/event_set.hpp"
#include "port/port_group.hpp"
#include "port/relay_server.hpp"
#include "port/sharing_errors.hpp"

namespace feroce::port {

namespace {

// The kernel says which process sent an answer: any of the group may have.
ssize_t receive_answer(int connection, GuestMessage& answer, pid_t& sender) {
    iovec vec{&answer, sizeof answer};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
    msghdr message{};
    message.msg_iov = &vec;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    const cmsghdr* header = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (header == nullptr || header->cmsg_type != SCM_CREDENTIALS) return n;
    ucred credentials;
    std::memcpy(&credentials, CMSG_DATA(header), sizeof credentials);
    sender = credentials.pid;
    return n;
}

void set_credentials(int connection, int wanted) {
    ::setsockopt(connection, SOL_SOCKET, SO_PASSCRED, &wanted, sizeof wanted);
}

}  // namespace

Result<RelaySeat> RelaySeat::ask(std::uint16_t port, std::uint32_t owner, FormerSeat before,
                                 Duration patience) {
    Result<Fd> connection = connect_to_group(port, owner);
    if (!connection) return connection.error();
    return ask_over(std::move(*connection), owner, before, patience);
}

Result<RelaySeat> RelaySeat::ask_over(Fd connection, std::uint32_t owner, FormerSeat before,
                                      Duration patience) {
    const Instant deadline = monotonic_now() + patience;
    const GuestMessage question{
        .kind = GuestMessage::Kind::Ask, .slot = before.slot, .token = before.token};
    GuestMessage answer;
    pid_t relay = 0;
    set_credentials(connection.get(), 1);
    // A refusal may be there before we have asked, and its sender gone.
    (void)!::send(connection.get(), &question, sizeof question, MSG_NOSIGNAL);
    if (!wait_for_input(connection.get(), deadline)) return kSilent;
    ssize_t n = receive_answer(connection.get(), answer, relay);
    if (n < 0 && errno == ECONNRESET) n = receive_answer(connection.get(), answer, relay);
    set_credentials(connection.get(), 0);  // Parcels do without.
    if (n <= 0) return kSilent;
    if (n != sizeof answer || answer.magic != GuestMessage::kMagic) return kOtherVersion;
    if (answer.refusal == EACCES)
        return Error{EACCES,
                     "UDP port 4791 is held by another user's processes, which do not share it "
                     "(FEROCE_SHARE=user): end them or run them without that"};
    if (answer.refusal == EAGAIN)
        return Error{
            EAGAIN,
            "UDP port 4791 is held by another user's processes, which have no slot for this "
            "user just now, or were asked too often: try again later"};
    if (answer.refusal == ENOMEM)
        return Error{ENOMEM,
                     "UDP port 4791 is held by another user's processes, which have no memory to "
                     "pass on what arrives for this one: free some, or end one of them"};
    if (answer.refusal != 0)
        return Error{answer.refusal,
                     "UDP port 4791 is held by another user's processes, which have no slot left "
                     "for this user: end some of its processes, or wait a minute"};
    RelaySeat seat;
    seat.connection = std::move(connection);
    seat.slot = static_cast<SlotNumber>(answer.slot);
    seat.owner = owner;
    seat.token = answer.token;
    seat.relay = relay;
    return seat;
}

void RelaySeat::want_requests() const {
    const GuestMessage message{.kind = GuestMessage::Kind::WantRequests};
    (void)!::send(connection.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void RelaySeat::say_something() const {
    const GuestMessage message{.kind = GuestMessage::Kind::AreYouThere};
    (void)!::send(connection.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool RelaySeat::is_unread() const {
    int bytes = 0;
    return ::ioctl(connection.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace feroce::port
