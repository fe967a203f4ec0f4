#include "port/port_group.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/rollback.hpp"
#include "port/group_socket.hpp"
#include "port/parcel.hpp"
#include "port/relay_server.hpp"

namespace feroce::port {
namespace {

constexpr std::uint32_t kMagic = 0xfe0c'e005;    // Changes with the layout of hand-over and table.
constexpr std::size_t kFdsMax = 2 + 2 * kSlots;  // Listener, table, sockets.

// How often members look whether one of them has died: its peers shall know within 2 s.
constexpr Duration kLookGap = std::chrono::milliseconds(500);

struct HandOver {
    std::uint32_t magic = kMagic;
    std::uint32_t slots = kSlots;
    std::uint32_t with_v6 = 0;
};

// Abstract, so it lives in the network namespace, as the port does, and dies with its socket.
socklen_t group_name(sockaddr_un& out, std::uint16_t port, std::uint32_t user) {
    std::memset(&out, 0, sizeof out);
    out.sun_family = AF_UNIX;
    const int n = std::snprintf(out.sun_path + 1, sizeof out.sun_path - 1, "feroce/udp/%u/%u",
                                unsigned{port}, user);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  static_cast<std::size_t>(n));
}

std::optional<std::uint32_t> user_behind(int connection) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
    return peer.uid;
}

}  // namespace

Result<Fd> connect_to_group(std::uint16_t port, std::uint32_t user) {
    Fd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!connection.valid()) return Error{errno, "no unix socket to share UDP port 4791 with"};
    const timeval timeout{0, 300'000};
    ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    sockaddr_un name;
    const socklen_t length = group_name(name, port, user);
    if (::connect(connection.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0) {
        const int code = errno == ECONNREFUSED ? ECONNREFUSED : EAGAIN;
        return Error{code, "the processes that hold UDP port 4791 do not answer"};
    }
    // Anybody can take a name; the kernel says who it was.
    if (user_behind(connection.get()) != user)
        return Error{EPERM,
                     "another user has taken the name by which processes share UDP port 4791: find "
                     "the process with `ss -xlp` and end it"};
    return connection;
}

PortGroup::PortGroup(const Identity& identity)
    : identity_(identity),
      parcels_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}

PortGroup::~PortGroup() {
    relay_.reset();  // Its thread uses the rest.
}

Result<std::unique_ptr<PortGroup>> PortGroup::attempt(std::uint16_t port,
                                                      const Identity& identity) {
    const Result<Fd> connection = connect_to_group(port, identity.user);
    if (connection) return join(connection->get(), identity);
    if (connection.error().code != ECONNREFUSED) return connection.error();

    Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener.valid()) return Error{errno, "no unix socket to share UDP port 4791 with"};
    sockaddr_un name;
    const socklen_t length = group_name(name, port, identity.user);
    // Bound but not listening yet: others who connect are refused and see the name taken.
    if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0)
        return Error{EAGAIN, "another process founds the group of UDP port 4791"};
    return found(port, std::move(listener), identity);
}

Result<std::unique_ptr<PortGroup>> PortGroup::join(int connection, const Identity& identity) {
    HandOver header;
    iovec vec{&header, sizeof header};
    alignas(cmsghdr) char control[CMSG_SPACE(kFdsMax * sizeof(int))];
    msghdr message{};
    message.msg_iov = &vec;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    if (n == sizeof header && header.slots == 0)
        return Error{EBUSY,
                     "UDP port 4791 is held by another process, and this kernel cannot share it "
                     "(SO_ATTACH_REUSEPORT_CBPF): end that process first"};
    const cmsghdr* rights = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS)
        return Error{EAGAIN, "sharing UDP port 4791 failed: its members are stopped or orphaned"};

    const std::size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    int fds[kFdsMax];
    std::memcpy(fds, CMSG_DATA(rights), count * sizeof(int));
    const bool whole = (message.msg_flags & MSG_CTRUNC) == 0 && n == sizeof header;
    const std::size_t wanted = 2 + kSlots * (header.with_v6 != 0 ? 2 : 1);
    if (whole && header.magic == kMagic && header.slots == kSlots && count == wanted) {
        std::unique_ptr<PortGroup> group(new PortGroup(identity));
        if (group->adopt(fds, header.with_v6 != 0)) return group;
        return Error{ENOMEM, "the slot table of UDP port 4791 could not be mapped"};
    }
    for (std::size_t i = 0; i < count; ++i) ::close(fds[i]);
    if ((message.msg_flags & MSG_CTRUNC) != 0)
        return Error{EMFILE,
                     "too few file descriptors left (RLIMIT_NOFILE) to share UDP port 4791"};
    return Error{EPROTO, "UDP port 4791 is held by another version of Feroce"};
}

bool PortGroup::adopt(const int* fds, bool with_v6) {
    listener_ = Fd(fds[0]);
    for (std::size_t i = 0; i < kSlots; ++i) v4_[i] = Fd(fds[2 + i]);
    for (std::size_t i = 0; with_v6 && i < kSlots; ++i) v6_[i] = Fd(fds[2 + kSlots + i]);
    return table_.adopt(Fd(fds[1]));
}

namespace {

enum class Bound { All, Missing, Taken, Unsteered };

Bound bind_family(int family, std::uint16_t port, std::array<Fd, kSlots>& sockets) {
    for (std::size_t i = 0; i < sockets.size(); ++i) {
        Fd fd = make_group_socket(family);
        if (!fd.valid()) return i == 0 && family == AF_INET6 ? Bound::Missing : Bound::Taken;
        // A socket with a filter of its own joins no group: so the first bind is exclusive.
        if (i == 0 && !attach_steering(fd.get())) return Bound::Unsteered;
        if (!bind_group_socket(fd.get(), family, port)) {
            const bool absent = family == AF_INET6 && errno == EADDRNOTAVAIL;
            return absent ? Bound::Missing : Bound::Taken;
        }
        sockets[i] = std::move(fd);
    }
    return Bound::All;
}

// The only socket of its family: it shares with nobody.
Bound bind_alone(int family, std::uint16_t port, Fd& socket) {
    socket = make_group_socket(family);
    if (!socket.valid()) return family == AF_INET6 ? Bound::Missing : Bound::Taken;
    const int off = 0;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEPORT, &off, sizeof off);
    if (bind_group_socket(socket.get(), family, port)) return Bound::All;
    const bool absent = family == AF_INET6 && errno == EADDRNOTAVAIL;
    socket.reset();
    return absent ? Bound::Missing : Bound::Taken;
}

}  // namespace

Result<std::unique_ptr<PortGroup>> PortGroup::found(std::uint16_t port, Fd listener,
                                                    const Identity& identity) {
    std::unique_ptr<PortGroup> group(new PortGroup(identity));
    Bound v4 = bind_family(AF_INET, port, group->v4_);
    group->steered_ = v4 != Bound::Unsteered;
    if (!group->steered_) v4 = bind_alone(AF_INET, port, group->v4_[kLoneSlot]);
    Bound v6 = Bound::Taken;
    if (v4 == Bound::All)
        v6 = group->steered_ ? bind_family(AF_INET6, port, group->v6_)
                             : bind_alone(AF_INET6, port, group->v6_[kLoneSlot]);
    if (v4 != Bound::All || v6 == Bound::Taken) {
        if (errno == EMFILE) return Error{EMFILE, "too few file descriptors left (RLIMIT_NOFILE)"};
        return Error{EADDRINUSE,
                     "UDP port 4791 is taken by a program that is not Feroce, by the kernel's "
                     "rdma_rxe or by a NIC: end it, or remove the rxe device with `rdma link "
                     "delete`"};
    }
    if (!group->table_.create() || ::listen(listener.get(), static_cast<int>(kSlots)) != 0)
        return Error{errno, "the slot table of UDP port 4791 could not be made"};
    group->listener_ = std::move(listener);
    return group;
}

std::optional<std::uint8_t> PortGroup::claim() {
    for (std::uint32_t slot = 1; slot < kFirstGuestSlot; ++slot) {
        if ((claimed_ >> slot & 1) != 0 || !table_.try_lock(slot)) continue;
        claimed_ |= std::uint64_t{1} << slot;
        Rollback give_back([&] { release(static_cast<std::uint8_t>(slot)); });
        estates_.take(slot);
        give_back.keep();
        drain(v4_[slot].get());
        if (has_v6()) drain(v6_[slot].get());
        return static_cast<std::uint8_t>(slot);
    }
    return std::nullopt;
}

void PortGroup::release(std::uint8_t slot) {
    table_.unlock(slot);
    claimed_ &= ~(std::uint64_t{1} << slot);
}

void PortGroup::watch_for_deaths(std::function<void()> noticed) {
    death_noticed_ = std::move(noticed);
    next_look_.store(0, kRelaxed);
}

void PortGroup::look_for_deaths(Instant now) {
    if (now < next_look()) return;
    next_look_.store((now + kLookGap).time_since_epoch().count(), kRelaxed);
    if (estates_.waiting(claimed_)) death_noticed_();
}

void PortGroup::abandon() {
    listener_.reset();
    table_.abandon();
    parcels_.reset();
    for (Fd& fd : v4_) fd.reset();
    for (Fd& fd : v6_) fd.reset();
    if (relay_) relay_->abandon();
}

void PortGroup::share_with_others(RandomSource& random, std::function<void()> requests_wanted) {
    random_ = &random;
    requests_wanted_ = std::move(requests_wanted);
}

bool PortGroup::has_member(const ucred& process) const {
    return process.uid == identity_.user || table_.has_owner(process.pid);
}

void PortGroup::serve() {
    Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const std::optional<std::uint32_t> user =
        connection.valid() ? user_behind(connection.get()) : std::nullopt;
    if (!user) return;
    if (*user == identity_.user)
        hand_sockets_to(connection.get());
    else
        admit_guest(std::move(connection), *user);
}

void PortGroup::admit_guest(Fd connection, std::uint32_t user) {
    if (!requests_wanted_ || !steered_) {
        const GuestMessage answer{.kind = GuestMessage::Kind::Answer, .refusal = EACCES};
        (void)!::send(connection.get(), &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
        return;
    }
    const std::lock_guard lock(relay_mutex_);
    if (!relay_) relay_ = RelayServer::start(*this, *random_, requests_wanted_);
    if (relay_) relay_->admit(std::move(connection), user);
}

void PortGroup::hand_sockets_to(int newcomer) const {
    if (!steered_) {
        HandOver nothing;
        nothing.slots = 0;
        (void)!::send(newcomer, &nothing, sizeof nothing, MSG_NOSIGNAL | MSG_DONTWAIT);
        return;
    }
    int fds[kFdsMax];
    std::size_t count = 0;
    fds[count++] = listener_.get();
    fds[count++] = table_.fd();
    for (const Fd& fd : v4_) fds[count++] = fd.get();
    for (std::size_t i = 0; has_v6() && i < kSlots; ++i) fds[count++] = v6_[i].get();

    HandOver header;
    header.with_v6 = has_v6() ? 1 : 0;
    iovec vec{&header, sizeof header};
    alignas(cmsghdr) char control[CMSG_SPACE(kFdsMax * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &vec;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
    // A newcomer that gets nothing (it died, or too many fds are in flight) tries again.
    (void)!::sendmsg(newcomer, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool PortGroup::hand_over(const device::Datagram& packet) {
    const std::uint8_t slot = slot_of(packet.bytes);
    sockaddr_un owner;
    return slot != 0 && slot < kSlots && table_.parcel_name(slot, owner) && parcels_.valid() &&
           send_parcel(parcels_.get(), &owner, packet, 0);
}

}  // namespace feroce::port
