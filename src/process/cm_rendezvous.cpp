#include "process/cm_rendezvous.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace feroce::process {
namespace {

// The range Linux gives out for port 0 by default.
constexpr std::uint16_t kFirstFreePort = 32768;
constexpr std::uint16_t kFreePorts = 28232;
constexpr int kFreePortTries = 256;
constexpr std::size_t kBlockedMax = 4096;
constexpr int kTriesMax = 1000;  // One a millisecond.

std::string name_of(std::uint64_t service, const Gid& address) {
    return "feroce-cm-" + std::to_string(::geteuid()) + "-" + std::to_string(service) + "-" +
           to_string(address);
}

struct UnixName {
    sockaddr_un address{};
    socklen_t length = 0;

    explicit UnixName(const std::string& name) {
        address.sun_family = AF_UNIX;  // A leading zero byte makes the name abstract.
        ASSERT(name.size() < sizeof address.sun_path);
        std::memcpy(address.sun_path + 1, name.data(), name.size());
        length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

constexpr std::size_t kBytes = 16 + 16 + wire::kMadSize;
using Parcel = std::array<std::byte, kBytes>;

Parcel pack(const CmDatagram& d) {
    Parcel out;
    std::memcpy(out.data(), d.source.raw.data(), 16);
    std::memcpy(out.data() + 16, d.destination.raw.data(), 16);
    std::copy(d.mad.begin(), d.mad.end(), out.begin() + 32);
    return out;
}

CmDatagram unpack(const Parcel& in) {
    CmDatagram d;
    std::memcpy(d.source.raw.data(), in.data(), 16);
    std::memcpy(d.destination.raw.data(), in.data() + 16, 16);
    std::copy(in.begin() + 32, in.end(), d.mad.begin());
    return d;
}

// -1 with errno set if the name is taken.
int bind_name(const std::string& name) {
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    const UnixName address(name);
    if (::bind(fd, address.get(), address.length) == 0) return fd;
    const int code = errno;
    ::close(fd);
    errno = code;
    return -1;
}

}  // namespace

Result<PortLease> CmRendezvous::lease(wire::PortSpace space, const Gid& address,
                                      std::uint16_t port) {
    const int tries = port == 0 ? kFreePortTries : 1;
    for (int i = 0; i < tries; ++i) {
        const std::uint16_t wanted =
            port != 0 ? port
                      : static_cast<std::uint16_t>(kFirstFreePort + random_.next() % kFreePorts);
        const std::string name = name_of(wire::make_service_id(space, wanted).raw, address);
        const int fd = bind_name(name);
        if (fd >= 0) {
            const std::uint32_t id = next_id_++;
            held_[id] = {fd, false, name};
            return PortLease{id, wanted};
        }
        if (errno != EADDRINUSE) return Error{errno, "no unix socket for a port of rdma_cm"};
    }
    return Error{EADDRINUSE, "the rdma_cm port is taken on this address"};
}

void CmRendezvous::end(const PortLease& lease) {
    const auto found = held_.find(lease.id);
    if (found == held_.end()) return;
    ::close(found->second.fd);  // Leaves the epoll set by itself.
    held_.erase(found);
}

void CmRendezvous::set_listening(const PortLease& lease, bool listening) {
    const auto found = held_.find(lease.id);
    if (found == held_.end() || found->second.listening == listening) return;
    found->second.listening = listening;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = lease.id;
    ::epoll_ctl(epoll_, listening ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, found->second.fd, &event);
}

bool CmRendezvous::is_ours(const std::string& name) const {
    return std::any_of(held_.begin(), held_.end(),
                       [&](const auto& held) { return held.second.name == name; });
}

CmRendezvous::Handed CmRendezvous::try_hand(const std::string& name, const CmDatagram& request) {
    if (sender_ < 0) sender_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const UnixName address(name);
    const Parcel parcel = pack(request);
    if (::sendto(sender_, parcel.data(), parcel.size(), 0, address.get(), address.length) >= 0)
        return Handed::Taken;
    return errno == EAGAIN || errno == ENOBUFS ? Handed::Full : Handed::Nobody;
}

bool CmRendezvous::hand_to(const std::string& name, const CmDatagram& request) {
    if (is_ours(name)) return false;
    const Handed handed = try_hand(name, request);
    // A unix socket holds as few as ten datagrams. What finds no place waits here, within bounds;
    // beyond them the peer repeats itself.
    if (handed == Handed::Full && blocked_.size() < kBlockedMax)
        blocked_.push_back({name, request, 0});
    return handed != Handed::Nobody;
}

bool CmRendezvous::retry() {
    std::deque<Blocked> all;
    all.swap(blocked_);
    for (Blocked& b : all)
        if (try_hand(b.name, b.request) == Handed::Full && ++b.tries < kTriesMax)
            blocked_.push_back(std::move(b));
    return !blocked_.empty();
}

bool CmRendezvous::offer(const CmDatagram& request) {
    // REQ and SIDR_REQ have the service id at the same place; other messages name no service.
    const auto attribute = static_cast<wire::CmAttribute>(
        wire::MadHeader::parse(std::span(request.mad).first<wire::MadHeader::kSize>()).attribute);
    if (attribute != wire::CmAttribute::Req && attribute != wire::CmAttribute::SidrReq)
        return false;
    const std::uint64_t service = load_be64(std::span(request.mad).subspan<32, 8>());
    if (hand_to(name_of(service, request.destination), request)) return true;
    if (request.destination.is_v4() && hand_to(name_of(service, Gid::from_v4(0)), request))
        return true;
    return hand_to(name_of(service, Gid{}), request);
}

void CmRendezvous::drain(std::uint64_t lease, std::vector<CmDatagram>& out) {
    const auto found = held_.find(static_cast<std::uint32_t>(lease));
    if (found == held_.end() || !found->second.listening) return;
    Parcel parcel;
    while (::recv(found->second.fd, parcel.data(), parcel.size(), MSG_DONTWAIT) == kBytes)
        out.push_back(unpack(parcel));
}

void CmRendezvous::abandon() {
    for (const auto& [id, held] : held_) ::close(held.fd);
    if (sender_ >= 0) ::close(sender_);
}

}  // namespace feroce::process
