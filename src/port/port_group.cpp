#include "port/port_group.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

#include "port/group_socket.hpp"

namespace feroce::port {
namespace {

constexpr std::uint32_t kMagic = 0xfe0c'e001;  // Changes with the layout of the hand-over.
constexpr std::size_t kFdsMax = 2 + 2 * PortGroup::kSlots;  // Listener, locks, sockets.
constexpr std::int64_t kEnterTimeoutNs = 3'000'000'000;

struct HandOver {
    std::uint32_t magic = kMagic;
    std::uint32_t slots = PortGroup::kSlots;
    std::uint32_t with_v6 = 0;
};

std::int64_t monotonic_ns() {
    timespec t;
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

// Abstract, so it lives in the network namespace, as the port does, and dies with its socket.
socklen_t group_name(sockaddr_un& out, std::uint16_t port) {
    std::memset(&out, 0, sizeof out);
    out.sun_family = AF_UNIX;
    const int n = std::snprintf(out.sun_path + 1, sizeof out.sun_path - 1, "feroce/udp/%u/%u",
                                unsigned{port}, static_cast<unsigned>(::geteuid()));
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  static_cast<std::size_t>(n));
}

bool same_user(int connection) {
    ucred peer{};
    socklen_t length = sizeof peer;
    return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           peer.uid == ::geteuid();
}

void nap(std::uint32_t round) {
    // Different processes drift apart by their pids.
    const long spread = (::getpid() * 7919L + round * 104'729L) % 200'000L;
    const timespec t{0, 100'000L + spread};
    ::nanosleep(&t, nullptr);
}

}  // namespace

Result<std::unique_ptr<PortGroup>> PortGroup::enter(std::uint16_t port) {
    std::unique_ptr<PortGroup> group(new PortGroup);
    const std::int64_t deadline = monotonic_ns() + kEnterTimeoutNs;
    Error last{ETIMEDOUT, "sharing UDP port 4791 failed: its members are stopped or orphaned"};
    for (std::uint32_t round = 0; monotonic_ns() < deadline; ++round) {
        Result<Step> step = group->try_enter(port);
        if (!step && step.error().code != EADDRINUSE) return step.error();
        if (step && *step == Step::Done) return group;
        if (!step) last = step.error();
        nap(round);
    }
    return last;
}

PortGroup::~PortGroup() = default;

Result<PortGroup::Step> PortGroup::try_enter(std::uint16_t port) {
    sockaddr_un name;
    const socklen_t name_length = group_name(name, port);
    const auto* address = reinterpret_cast<const sockaddr*>(&name);
    Fd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!connection.valid()) return Error{errno, "no unix socket to share UDP port 4791 with"};
    const timeval timeout{0, 300'000};
    ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (::connect(connection.get(), address, name_length) == 0) return join(connection.get());
    if (errno != ECONNREFUSED) return Step::Retry;

    Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener.valid()) return Error{errno, "no unix socket to share UDP port 4791 with"};
    // Bound but not listening yet: others who connect are refused and see the name taken.
    if (::bind(listener.get(), address, name_length) != 0) return Step::Retry;
    return found(port, std::move(listener));
}

Result<PortGroup::Step> PortGroup::join(int connection) {
    if (!same_user(connection)) return Error{EPERM, "the sharing name of UDP port 4791 is foreign"};
    HandOver header;
    iovec vec{&header, sizeof header};
    alignas(cmsghdr) char control[CMSG_SPACE(kFdsMax * sizeof(int))];
    msghdr message{};
    message.msg_iov = &vec;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    const cmsghdr* rights = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return Step::Retry;

    const std::size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    int fds[kFdsMax];
    std::memcpy(fds, CMSG_DATA(rights), count * sizeof(int));
    const bool whole = (message.msg_flags & MSG_CTRUNC) == 0 && n == sizeof header;
    if (whole && header.magic == kMagic && header.slots == kSlots &&
        adopt(fds, count, header.with_v6 != 0))
        return Step::Done;
    for (std::size_t i = 0; i < count; ++i) ::close(fds[i]);
    if ((message.msg_flags & MSG_CTRUNC) != 0)
        return Error{EMFILE,
                     "too few file descriptors left (RLIMIT_NOFILE) to share UDP port 4791"};
    return Error{EPROTO, "UDP port 4791 is held by another version of Feroce"};
}

bool PortGroup::adopt(const int* fds, std::size_t count, bool with_v6) {
    if (count != 2 + kSlots * (with_v6 ? 2 : 1)) return false;
    listener_ = Fd(fds[0]);
    locks_ = Fd(fds[1]);
    for (std::size_t i = 0; i < kSlots; ++i) v4_[i] = Fd(fds[2 + i]);
    for (std::size_t i = 0; with_v6 && i < kSlots; ++i) v6_[i] = Fd(fds[2 + kSlots + i]);
    return true;
}

namespace {

enum class Bound { All, Missing, Taken };

Bound bind_family(int family, std::uint16_t port, std::array<Fd, PortGroup::kSlots>& sockets) {
    for (std::size_t i = 0; i < sockets.size(); ++i) {
        Fd fd = make_group_socket(family);
        if (!fd.valid()) return i == 0 && family == AF_INET6 ? Bound::Missing : Bound::Taken;
        // A socket with a filter of its own joins no group: so the first bind is exclusive.
        if (i == 0 && !attach_steering(fd.get())) return Bound::Taken;
        if (!bind_group_socket(fd.get(), family, port)) {
            const bool absent = family == AF_INET6 && errno == EADDRNOTAVAIL;
            return absent ? Bound::Missing : Bound::Taken;
        }
        sockets[i] = std::move(fd);
    }
    return Bound::All;
}

}  // namespace

Result<PortGroup::Step> PortGroup::found(std::uint16_t port, Fd listener) {
    const auto undo = [this] {
        for (Fd& fd : v4_) fd.reset();
        for (Fd& fd : v6_) fd.reset();
    };
    const Bound v4 = bind_family(AF_INET, port, v4_);
    const Bound v6 = v4 == Bound::All ? bind_family(AF_INET6, port, v6_) : Bound::Taken;
    if (v4 != Bound::All || v6 == Bound::Taken) {
        const int code = errno;
        undo();
        if (code == EMFILE) return Error{EMFILE, "too few file descriptors left (RLIMIT_NOFILE)"};
        return Error{EADDRINUSE,
                     "UDP port 4791 is taken by another user's process, the kernel's rdma_rxe or a "
                     "NIC"};
    }
    locks_ = Fd(::memfd_create("feroce-slots", MFD_CLOEXEC));
    if (!locks_.valid() || ::ftruncate(locks_.get(), kSlots) != 0 ||
        ::listen(listener.get(), static_cast<int>(kSlots)) != 0) {
        const int code = errno;
        undo();
        return Error{code, "the slot table of UDP port 4791 could not be made"};
    }
    listener_ = std::move(listener);
    return Step::Done;
}

std::optional<std::uint8_t> PortGroup::claim() {
    for (std::uint32_t slot = 1; slot < kSlots; ++slot) {
        if ((claimed_ >> slot & 1) != 0) continue;
        struct flock lock {};
        lock.l_type = F_WRLCK;
        lock.l_whence = SEEK_SET;
        lock.l_start = slot;
        lock.l_len = 1;
        if (::fcntl(locks_.get(), F_SETLK, &lock) != 0) continue;
        claimed_ |= std::uint64_t{1} << slot;
        drain(v4_[slot].get());
        if (has_v6()) drain(v6_[slot].get());
        return static_cast<std::uint8_t>(slot);
    }
    return std::nullopt;
}

void PortGroup::release(std::uint8_t slot) {
    struct flock lock {};
    lock.l_type = F_UNLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = slot;
    lock.l_len = 1;
    ::fcntl(locks_.get(), F_SETLK, &lock);
    claimed_ &= ~(std::uint64_t{1} << slot);
}

void PortGroup::abandon() {
    listener_.reset();
    locks_.reset();
    for (Fd& fd : v4_) fd.reset();
    for (Fd& fd : v6_) fd.reset();
}

void PortGroup::serve() const {
    Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid() || !same_user(connection.get())) return;
    int fds[kFdsMax];
    std::size_t count = 0;
    fds[count++] = listener_.get();
    fds[count++] = locks_.get();
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
    (void)!::sendmsg(connection.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace feroce::port
