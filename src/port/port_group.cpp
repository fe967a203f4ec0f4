#include "port/port_group.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/rollback.hpp"
#include "port/clock.hpp"
#include "port/event_set.hpp"
#include "port/group_socket.hpp"
#include "port/parcel.hpp"
#include "port/port_owner.hpp"
#include "port/relay_server.hpp"
#include "port/sharing_errors.hpp"
#include "wire/mad.hpp"

namespace feroce::port {
namespace {

constexpr std::uint32_t kMagic = 0xfe0c'e008;     // Changes with the layout of hand-over and table.
constexpr std::size_t kHandedOver = 2 + kChunks;  // Listener, table, lots.
// What an older version hands over, and more: none of it may be cut off and left open.
constexpr std::size_t kFdsMax = 253;

constexpr int kCountsMax = 8;
// How long a process of the group is waited for.
constexpr Duration kMemberAnswer = std::chrono::milliseconds(300);

struct HandOver {
    std::uint32_t magic = kMagic;
    std::uint32_t slots = kSlots;  // Or one of those below: nothing comes with it.
    std::uint32_t with_v6 = 0;
};
constexpr std::uint32_t kCannotShare = 0;                 // The kernel has no steering.
constexpr std::uint32_t kMayNotPass = ~std::uint32_t{0};  // Another member may.

void refuse(int newcomer, std::uint32_t why) {
    HandOver nothing;
    nothing.slots = why;
    (void)!::send(newcomer, &nothing, sizeof nothing, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Abstract, so it lives in the network namespace, as the port does, and dies with its socket.
socklen_t group_name(sockaddr_un& out, std::uint16_t port, std::uint32_t user) {
    std::memset(&out, 0, sizeof out);
    out.sun_family = AF_UNIX;
    const int n = std::snprintf(out.sun_path + 1, sizeof out.sun_path - 1, "feroce/udp/%u/%u",
                                unsigned{port}, user);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  static_cast<std::size_t>(n));
}

// After a failed park() or make_lot().
Error parking_error() {
    if (errno == EMFILE || errno == ENFILE) return kTooFewFds;
    if (errno == ETOOMANYREFS)
        return {ETOOMANYREFS,
                "no slots of UDP port 4791 can be kept, because the kernel counts too many file "
                "descriptors of this user in flight: raise the limit of open files (ulimit -n)"};
    return {errno,
            "no slots of UDP port 4791 can be kept, because the kernel refuses unix sockets or "
            "their memory: raise net.core.wmem_max, or free some memory"};
}

// After a failed bind_family() that adds to the group.
Error adding_error() {
    if (errno == EMFILE || errno == ENFILE) return kTooFewFds;
    if (errno == EADDRINUSE) return kOthers;
    return {
        errno,
        "more slots of UDP port 4791 cannot be added, because the kernel refuses more sockets "
        "(IPv6 was taken away, or memory is short): restart its processes, or free some memory"};
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
    if (!connection.valid()) return no_unix_socket(errno);
    const timeval timeout{0, kMemberAnswer / std::chrono::microseconds(1)};
    ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    sockaddr_un name;
    const socklen_t length = group_name(name, port, user);
    if (::connect(connection.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0) {
        const int code = errno == ECONNREFUSED ? ECONNREFUSED : EAGAIN;
        return Error{code, kSilent.why};
    }
    // Anybody can take a name; the kernel says who it was.
    if (user_behind(connection.get()) != user) return kNameTaken;
    return connection;
}

PortGroup::PortGroup(std::uint16_t port, const Identity& identity, std::shared_ptr<ForkGate> gate)
    : port_(port), identity_(identity), gate_(std::move(gate)) {
    const ForkGate::Hold hold(*gate_);
    gate_->add(*this);
    parcels_ = Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

PortGroup::~PortGroup() {
    if (relay_) relay_->stop();  // Its thread uses the rest, and the gate.
    const ForkGate::Hold hold(*gate_);
    relay_.reset();
    close_all();
    gate_->remove(*this);
}

Result<std::unique_ptr<PortGroup>> PortGroup::attempt(std::uint16_t port, const Identity& identity,
                                                      const std::shared_ptr<ForkGate>& gate) {
    std::unique_ptr<PortGroup> group(new PortGroup(port, identity, gate));
    const Result<Fd> connection = connect_to_group(port, identity.user);
    if (!connection && connection.error().code != ECONNREFUSED) return connection.error();
    if (connection) {
        if (!wait_for_input(connection->get(), monotonic_now() + kMemberAnswer)) return kSilent;
        if (const Result<void> joined = group->join(connection->get()); !joined)
            return joined.error();
        return group;
    }
    const ForkGate::Hold hold(*gate);
    Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener.valid()) return no_unix_socket(errno);
    sockaddr_un name;
    const socklen_t length = group_name(name, port, identity.user);
    // Bound but not listening yet: others who connect are refused and see the name taken.
    if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0)
        return Error{EAGAIN,
                     "UDP port 4791 cannot be entered, because another process is just entering it "
                     "as the first: try again, and if it is stopped, continue or end it"};
    if (const Result<void> founded = group->found(std::move(listener)); !founded)
        return founded.error();
    return group;
}

Result<void> PortGroup::join(int connection) {
    const ForkGate::Hold hold(*gate_);
    HandOver header;
    iovec vec{&header, sizeof header};
    alignas(cmsghdr) char control[CMSG_SPACE(kFdsMax * sizeof(int))];
    msghdr message{};
    message.msg_iov = &vec;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n == sizeof header && header.slots == kMayNotPass) return kMayNotPassOn;
    if (n == sizeof header && header.slots == kCannotShare) return kCannotSteer;
    if (n < 0) return kSilent;
    const cmsghdr* rights = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return kNothingCame;

    const std::size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    int fds[kFdsMax];
    std::memcpy(fds, CMSG_DATA(rights), count * sizeof(int));
    const bool same_version =
        n == sizeof header && header.magic == kMagic && header.slots == kSlots;
    if (same_version && (message.msg_flags & MSG_CTRUNC) == 0 && count == kHandedOver)
        return adopt(fds, header.with_v6 != 0);
    for (std::size_t i = 0; i < count; ++i) ::close(fds[i]);
    return same_version ? kTooFewFds : kOtherVersion;
}

Result<void> PortGroup::adopt(const int* fds, bool with_v6) {
    listener_ = Fd(fds[0]);
    for (std::size_t i = 0; i < kChunks; ++i) lots_[i] = Fd(fds[2 + i]);
    with_v6_ = with_v6;
    if (!table_.adopt(Fd(fds[1])))
        return Error{ENOMEM,
                     "UDP port 4791 cannot be shared, because its table of slots cannot be mapped: "
                     "raise the limit of address space (ulimit -v), or free some memory"};
    if (!open_sockets(0)) return kTooFewFds;
    return {};
}

bool PortGroup::open_sockets(SlotNumber slot) {
    if (!steered_ || v4_[slot].valid()) return true;
    const ForkGate::Hold hold(*gate_);
    std::optional<SlotSockets> found = look_up(lots_[slot / kChunkSlots].get(), slot % kChunkSlots);
    if (!found) return false;
    v4_[slot] = std::move(found->v4);
    v6_[slot] = std::move(found->v6);
    return true;
}

void PortGroup::close_sockets(SlotNumber slot) {
    if (!steered_) return;
    const ForkGate::Hold hold(*gate_);
    v4_[slot].reset();
    v6_[slot].reset();
}

namespace {

enum class Bound { All, Missing, Taken, Unsteered };

// `first`: founds the group. Sockets that follow get the next places in it.
Bound bind_family(int family, std::uint16_t port, bool first,
                  std::array<Fd, kChunkSlots>& sockets) {
    for (std::size_t i = 0; i < sockets.size(); ++i) {
        Fd fd = make_group_socket(family);
        if (!fd.valid()) return i == 0 && family == AF_INET6 ? Bound::Missing : Bound::Taken;
        // A socket with a filter of its own joins no group: so the first bind is exclusive.
        if (first && i == 0 && !attach_steering(fd.get())) return Bound::Unsteered;
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

Result<void> PortGroup::found(Fd listener) {
    if (const Result<void> bound = bind_first_chunk(); !bound) return bound;
    if (!open_sockets(0)) return kTooFewFds;
    if (::listen(listener.get(), static_cast<int>(kSlots)) != 0) return no_unix_socket(errno);
    listener_ = std::move(listener);
    return {};
}

// The port is bound first: if that fails, others may try it at once.
Result<void> PortGroup::bind_first_chunk() {
    ChunkSockets sockets;
    Bound v4 = bind_family(AF_INET, port_, true, sockets.v4);
    steered_ = v4 != Bound::Unsteered;
    if (!steered_) v4 = bind_alone(AF_INET, port_, v4_[kLoneSlot]);
    Bound v6 = Bound::Taken;
    if (v4 == Bound::All)
        v6 = steered_ ? bind_family(AF_INET6, port_, true, sockets.v6)
                      : bind_alone(AF_INET6, port_, v6_[kLoneSlot]);
    if (v4 != Bound::All || v6 == Bound::Taken) {
        if (errno == EMFILE || errno == ENFILE) return kTooFewFds;
        return Error{EADDRINUSE,
                     "UDP port 4791 is taken by a program that is not Feroce, by the kernel's "
                     "rdma_rxe or by a NIC: end it, or unload rxe with `modprobe -r rdma_rxe`"};
    }
    with_v6_ = v6 == Bound::All;
    if (!table_.create())
        return Error{errno,
                     "UDP port 4791 cannot be shared, because its table of slots cannot be made: "
                     "raise the limits of open files and of address space (ulimit -n, -v), or free "
                     "some memory"};
    table_.set_chunks(1);
    if (!steered_) return {};
    for (Fd& lot : lots_) lot = make_lot();
    if (!lots_.back().valid() || !park(lots_[0].get(), sockets)) return parking_error();
    return {};
}

// Whether the kernel has those sockets and no others. If not, a process that has died while it
// added slots still has some, or another program of this user has bound the port: the places of new
// ones in the group would be wrong, or would change when these vanish.
Result<void> PortGroup::count_sockets(std::uint32_t chunks) const {
    const std::uint32_t count = chunks * kChunkSlots;
    // The kernel shows its table in parts, and what others open meanwhile shifts them.
    for (int i = 0; i < kCountsMax; ++i) {
        const auto v4 = wildcard_sockets(AF_INET, port_);
        const auto v6 = with_v6_ ? wildcard_sockets(AF_INET6, port_) : count;
        if (!v4 || !v6) return kNoTable;
        if (*v4 == count && *v6 == count) return {};
    }
    return kOthers;
}

Result<void> PortGroup::bind_chunk(std::uint32_t chunk) {
    const ForkGate::Hold hold(*gate_);
    ChunkSockets sockets;
    if (const Result<void> alone = count_sockets(chunk); !alone) return alone;
    if (bind_family(AF_INET, port_, false, sockets.v4) != Bound::All ||
        (with_v6_ && bind_family(AF_INET6, port_, false, sockets.v6) != Bound::All))
        return adding_error();
    if (const Result<void> alone = count_sockets(chunk + 1); !alone) return alone;
    if (!park(lots_[chunk].get(), sockets)) return parking_error();
    return {};
}

Result<void> PortGroup::grow() {
    const std::uint32_t before = table_.chunks();
    const std::lock_guard lock(growth_mutex_);
    if (!steered_) return kUnsteered;
    if (before == kChunks) return kAllTaken;
    if (!table_.try_lock_growth()) return kGrowing;
    Result<void> grown;
    const std::uint32_t chunk = table_.chunks();
    if (chunk == before) {
        // One that is not empty was filled by a process that died before it could say so.
        if (is_empty(lots_[chunk].get())) grown = bind_chunk(chunk);
        if (grown) table_.set_chunks(chunk + 1);
    }
    table_.unlock_growth();
    return grown;
}

SlotNumber PortGroup::lock_free_slot() {
    // Those first that look free: trying a lock is a system call. The dead leave others.
    for (const bool any : {false, true})
        for (std::uint32_t s = 1; s < table_.slots(); ++s) {
            const auto slot = static_cast<SlotNumber>(s);
            if (!is_member_slot(slot) || claimed().has(slot)) continue;
            if ((any || table_.incarnation(slot) == 0) && table_.try_lock(slot)) return slot;
        }
    return 0;
}

Result<SlotNumber> PortGroup::claim() {
    SlotNumber slot = lock_free_slot();
    for (; slot == 0; slot = lock_free_slot())
        if (const Result<void> grown = grow(); !grown) return grown.error();
    if (!open_sockets(slot)) {
        table_.unlock(slot);
        return kTooFewFds;
    }
    claimed_.add(slot);
    Rollback give_back([&] { release(slot); });
    ties_[slot] = std::make_unique<Ties>(table_, parcels_.get(), slot, *gate_);
    if (!ties_[slot]->open()) return kTooFewFds;
    estates_.take(slot);
    give_back.keep();
    if (watcher() == 0) watcher_.store(slot, kRelaxed);
    drain(v4_[slot].get());
    if (has_v6()) drain(v6_[slot].get());
    return slot;
}

void PortGroup::release(SlotNumber slot) {
    const ForkGate::Hold hold(*gate_);
    if (watcher() == slot) watcher_.store(0, kRelaxed);
    ties_[slot].reset();
    close_sockets(slot);
    table_.unlock(slot);
    claimed_.remove(SlotSet::of(slot));
}

void PortGroup::watch_for_deaths(std::function<void()> noticed) {
    death_noticed_ = std::move(noticed);
}

bool PortGroup::look_for_deaths() {
    if (!death_noticed_ || !estates_.waiting(claimed())) return false;
    death_noticed_();
    return true;
}

void PortGroup::close_all() {
    listener_.reset();
    table_.abandon();
    parcels_.reset();
    for (const std::unique_ptr<Ties>& ties : ties_)
        if (ties) ties->abandon();
    for (Fd& fd : lots_) fd.reset();
    for (Fd& fd : v4_) fd.reset();
    for (Fd& fd : v6_) fd.reset();
}

void PortGroup::abandon() {
    close_all();
    if (relay_) relay_->abandon();
}

void PortGroup::share_with_others(RandomSource& random, std::function<void()> requests_wanted) {
    random_ = &random;
    requests_wanted_ = std::move(requests_wanted);
}

bool PortGroup::has_member(const ucred& process) const {
    return process.uid == identity_.user || table_.has_owner(process.pid);
}

bool PortGroup::serve() {
    const ForkGate::Hold hold(*gate_);
    Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    // Without a descriptor for it the newcomer stays there, and is for others.
    if (!connection.valid()) return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
    const std::optional<std::uint32_t> user = user_behind(connection.get());
    if (!user) return true;
    if (*user == identity_.user) return hand_sockets_to(connection.get());
    admit_guest(std::move(connection), *user);
    return true;
}

void PortGroup::admit_guest(Fd connection, std::uint32_t user) {
    if (!requests_wanted_ || !steered_) {
        const GuestMessage answer{.kind = GuestMessage::Kind::Answer, .refusal = EACCES};
        (void)!::send(connection.get(), &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
        return;
    }
    const ForkGate::Hold hold(*gate_);
    const std::lock_guard lock(relay_mutex_);
    if (!relay_) relay_ = RelayServer::start(*this, *random_, requests_wanted_);
    if (relay_) relay_->admit(std::move(connection), user);
}

bool PortGroup::hand_sockets_to(int newcomer) const {
    if (!steered_) {
        refuse(newcomer, kCannotShare);
        return true;
    }
    int fds[kHandedOver];
    std::size_t count = 0;
    fds[count++] = listener_.get();
    fds[count++] = table_.fd();
    for (const Fd& fd : lots_) fds[count++] = fd.get();

    HandOver header;
    header.with_v6 = has_v6() ? 1 : 0;
    iovec vec{&header, sizeof header};
    alignas(cmsghdr) char control[CMSG_SPACE(kHandedOver * sizeof(int))] = {};
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
    // One that has died does not matter. What lies in lots counts as in flight, too, and the limit
    // for that is the sender's own.
    if (::sendmsg(newcomer, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno != ETOOMANYREFS)
        return true;
    refuse(newcomer, kMayNotPass);
    return false;
}

bool PortGroup::hand_over(const device::Datagram& packet) {
    const SlotNumber slot = wire::steered_slot(packet.bytes);
    sockaddr_un owner;
    return slot != 0 && slot < kSlots && table_.parcel_name(slot, owner) && parcels_.valid() &&
           send_parcel(parcels_.get(), &owner, packet, 0);
}

}  // namespace feroce::port
