// What an rsocket of datagrams is before and beside its datagrams (datagram_data.cpp).
#include "rsocket/datagram_socket.hpp"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#pragma GCC visibility push(default)
#include <rdma/rsocket.h>
#pragma GCC visibility pop

#include "base/shortage.hpp"
#include "base/uncancelled.hpp"

namespace feroce::rsockets {
namespace {

// More local addresses than that send by none of ours.
constexpr std::size_t kMostLinks = 64;
// Beyond it, the peer that was not heard of for longest is forgotten.
constexpr std::size_t kMostPeers = 4096;
constexpr std::chrono::seconds kFarewell{1};
constexpr std::uint32_t kLooksBetweenPackets = 64;

// By the system calls: the C library's socket() is librspreload's where that is loaded, and from
// rdma-core 65 on its epoll too. They would come back here.
int kernel_epoll_create() {
    return static_cast<int>(::syscall(SYS_epoll_create1, EPOLL_CLOEXEC));
}

int kernel_epoll_ctl(int set, int operation, int descriptor, epoll_event* event) {
    return static_cast<int>(::syscall(SYS_epoll_ctl, set, operation, descriptor, event));
}

int kernel_socket(int family, int flags) {
    return static_cast<int>(::syscall(SYS_socket, family, SOCK_DGRAM | SOCK_CLOEXEC | flags, 0));
}

Result<void> watch(int all, int descriptor) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (kernel_epoll_ctl(all, EPOLL_CTL_ADD, descriptor, &event) != 0)
        return Error{errno, "a descriptor cannot be watched"};
    return {};
}

// Has the kernel say which local address reaches a peer.
class Scout {
public:
    explicit Scout(int family) : fd_(kernel_socket(family, 0)) {}
    ~Scout() {
        if (fd_ >= 0) ::close(fd_);
    }
    Scout(const Scout&) = delete;
    Scout& operator=(const Scout&) = delete;

    Result<Name> source_toward(const sockaddr_storage& peer) const {
        sockaddr_storage found{};
        socklen_t length = sizeof found;
        if (fd_ < 0 || ::connect(fd_, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) != 0 ||
            ::getsockname(fd_, reinterpret_cast<sockaddr*>(&found), &length) != 0)
            return Error{errno, "no route to the peer"};
        return Name::of(reinterpret_cast<const sockaddr*>(&found), length);
    }

private:
    int fd_;
};

}  // namespace

Result<std::shared_ptr<DatagramSocket>> DatagramSocket::create(int family, bool blocking) {
    std::shared_ptr<DatagramSocket> made(new DatagramSocket(family, blocking));
    if (Result<void> opened = made->open(); !opened) return opened.error();
    return made;
}

Result<void> DatagramSocket::open() {
    udp_ = kernel_socket(family_, SOCK_NONBLOCK);
    if (udp_ < 0) return Error{errno, "no UDP socket"};
    all_ = kernel_epoll_create();
    if (all_ < 0) return Error{errno, "no epoll"};
    return watch(all_, udp_);
}

DatagramSocket::~DatagramSocket() {
    arrived_.clear();
    peers_.clear();  // Their address handles are of the links.
    links_.clear();
    failed_.clear();
    if (all_ >= 0) ::close(all_);
    if (udp_ >= 0) ::close(udp_);
}

// ---- names and options: the kernel's

std::optional<Name> DatagramSocket::kernel_name() const {
    sockaddr_storage found{};
    socklen_t length = sizeof found;
    if (::getsockname(udp_, reinterpret_cast<sockaddr*>(&found), &length) != 0) return std::nullopt;
    const Result<Name> name = Name::of(reinterpret_cast<const sockaddr*>(&found), length);
    return name ? std::optional(*name) : std::nullopt;
}

Result<void> DatagramSocket::bind(const sockaddr* address, socklen_t length) {
    const Lock lock(mutex_);
    if (::bind(udp_, address, length) != 0) return Error{errno, "the address cannot be bound"};
    bound_ = true;
    return {};
}

// A link tells the port, so it has to be there before the first datagram.
Result<void> DatagramSocket::ensure_bound() {
    if (bound_) return {};
    sockaddr_storage any{};
    any.ss_family = static_cast<sa_family_t>(family_);
    const socklen_t length = family_ == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::bind(udp_, reinterpret_cast<const sockaddr*>(&any), length) != 0)
        return Error{errno, "no port is free"};
    bound_ = true;
    return {};
}

Result<void> DatagramSocket::connect(const sockaddr* address, socklen_t length) {
    const Lock lock(mutex_);
    if (::connect(udp_, address, length) != 0) return Error{errno, "the peer cannot be reached"};
    connected_.reset();
    if (address->sa_family == AF_UNSPEC) return on_dissolved();
    bound_ = true;
    // The kernel's name of the peer: for the address that is any it is another than the caller's.
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(udp_, reinterpret_cast<sockaddr*>(&peer), &size) != 0)
        return Error{errno, "the rsocket has no peer"};
    const Result<Name> name = Name::of(reinterpret_cast<const sockaddr*>(&peer), size);
    if (!name) return name.error();
    connected_ = *name;
    return {};
}

// The kernel has taken the port back if it had chosen it; links tell peers the port.
Result<void> DatagramSocket::on_dissolved() {
    const std::optional<Name> name = kernel_name();
    bound_ = name && name->port != 0;
    if (bound_) return {};
    peers_.clear();  // Their address handles are of the links.
    failed_.reserve(failed_.size() + links_.size());
    for (std::unique_ptr<UdLink>& link : links_) {
        static_cast<void>(kernel_epoll_ctl(all_, EPOLL_CTL_DEL, link->descriptor(), nullptr));
        failed_.push_back(std::move(link));
    }
    links_.clear();
    drop_read_links();
    return {};
}

Result<void> DatagramSocket::local_name(sockaddr* address, socklen_t* length) {
    if (::getsockname(udp_, address, length) != 0) return Error{errno, "no name"};
    return {};
}

Result<void> DatagramSocket::peer_name(sockaddr* address, socklen_t* length) {
    if (::getpeername(udp_, address, length) != 0) return Error{errno, "the rsocket has no peer"};
    return {};
}

Result<void> DatagramSocket::set_option(int level, int name, const void* value, socklen_t length) {
    const Lock lock(mutex_);
    if (level == SOL_RDMA) return rsockets::set_option(options_, level, name, value, length);
    if (::setsockopt(udp_, level, name, value, length) != 0)
        return Error{errno, "the UDP socket refuses the option"};
    // Timeouts and sizes count for queue pairs too; what rsockets do not know is the kernel's
    // alone.
    static_cast<void>(rsockets::set_option(options_, level, name, value, length));
    return {};
}

Result<void> DatagramSocket::get_option(int level, int name, void* value, socklen_t* length) {
    const Lock lock(mutex_);
    if (length == nullptr) return Error{EFAULT, "no length"};
    if (level == SOL_RDMA) return rsockets::get_option(options_, level, name, value, *length);
    if (::getsockopt(udp_, level, name, value, length) != 0)
        return Error{errno, "the UDP socket does not know the option"};
    return {};
}

// ---- peers

// Where the kernel's socket is bound to an address it is that one, else the route says.
Result<Name> DatagramSocket::local_toward(const Name& peer) const {
    std::optional<Name> bound = kernel_name();
    if (!bound) return Error{errno, "no name"};
    if (!bound->is_any()) return *bound;
    const int family = peer.is_v4() ? AF_INET : AF_INET6;
    Result<Name> local = Scout(family).source_toward(peer.as(family));
    if (!local) return local;
    local->port = bound->port;
    return local;
}

Result<UdLink*> DatagramSocket::link_toward(const Name& peer) {
    const Result<Name> local = local_toward(peer);
    if (!local) return local.error();
    const auto known = std::find_if(links_.begin(), links_.end(),
                                    [&](const auto& link) { return link->local() == *local; });
    if (known != links_.end() && !(*known)->is_broken()) return known->get();
    if (links_.size() + failed_.size() >= kMostLinks)
        return Error{ENOBUFS, "too many local addresses"};
    Result<std::unique_ptr<UdLink>> made = UdLink::create(*local, options_);
    if (!made) return made.error();
    if (Result<void> watched = watch(all_, (*made)->descriptor()); !watched) return watched.error();
    (*made)->arm();  // A sleeper may be waiting for what it brings.
    UdLink* const link = made->get();
    if (known == links_.end())
        links_.push_back(std::move(*made));
    else
        replace(*known, std::move(*made));
    return link;
}

// Peers learn of the new queue pair by UDP.
void DatagramSocket::replace(std::unique_ptr<UdLink>& failed, std::unique_ptr<UdLink> by) {
    failed_.reserve(kMostLinks);  // Nothing below needs memory.
    static_cast<void>(kernel_epoll_ctl(all_, EPOLL_CTL_DEL, failed->descriptor(), nullptr));
    for (auto& [name, peer] : peers_) {
        if (peer.link != failed.get()) continue;
        peer.handle.reset();
        peer.link = by.get();
    }
    failed_.push_back(std::exchange(failed, std::move(by)));
    drop_read_links();
}

void DatagramSocket::drop_read_links() {
    if (failed_.empty()) return;
    const Uncancelled part;
    std::erase_if(failed_, [this](const auto& link) {
        return std::none_of(arrived_.begin(), arrived_.end(),
                            [&](const Datagram& datagram) { return datagram.link == link.get(); });
    });
}

Result<DatagramSocket::Peer*> DatagramSocket::peer_of(const Name& name) {
    const auto known = peers_.find(name);
    if (known != peers_.end() && !known->second.link->is_broken()) return &known->second;
    const Uncancelled part;  // Descriptors are closed in destructors.
    const Result<UdLink*> link = link_toward(name);
    if (!link) return link.error();
    Peer& peer = known != peers_.end() ? known->second : new_peer(name);
    if (peer.link != *link) {  // The route may be another now.
        peer.handle.reset();
        peer.link = *link;
    }
    return &peer;
}

// Forged senders do not fill the table for good: peers that talk stay.
DatagramSocket::Peer& DatagramSocket::new_peer(const Name& name) {
    if (peers_.size() >= kMostPeers)
        peers_.erase(std::min_element(peers_.begin(), peers_.end(), [](auto& a, auto& b) {
            return a.second.heard < b.second.heard;
        }));
    Peer& peer = peers_[name];
    peer.heard = Clock::now();
    return peer;
}

// The peer has told its queue pair, or that it is still the one we know.
void DatagramSocket::learn(Peer& peer, const Name& name, std::uint32_t queue_pair) {
    if (peer.handle == nullptr) {
        Result<AddressHandle> handle = peer.link->reach(name);
        if (!handle) return;  // It stays with UDP.
        peer.handle = std::move(*handle);
    }
    peer.queue_pair = queue_pair;
    peer.heard = Clock::now();
}

// ---- waiting

void DatagramSocket::progress() {
    for (const std::unique_ptr<UdLink>& link : links_) take_arrivals(*link);
    // The kernel is asked when there is nothing else, and now and then. What made a descriptor
    // readable stays while a thread sleeps on it.
    const bool look = arrived_.empty() || ++looks_ % kLooksBetweenPackets == 0;
    if (look && !is_asleep()) take_udp();
}

void DatagramSocket::arm() {
    for (const std::unique_ptr<UdLink>& link : links_) link->arm();
}

// Called by destructors. Without memory a datagram is lost, as in a full socket.
void DatagramSocket::drain() {
    static_cast<void>(with_memory([this] { take_udp(); }));
    for (const std::unique_ptr<UdLink>& link : links_) link->take_notice();
}

void DatagramSocket::append_descriptors(std::vector<pollfd>& to) const {
    to.push_back({all_, POLLIN, 0});
}

bool DatagramSocket::has_news() const {
    return !arrived_.empty() || error_ != 0 || !can_read_;
}

bool DatagramSocket::has_room() const {
    return !can_write_ || std::all_of(links_.begin(), links_.end(),
                                      [](const auto& link) { return link->has_room(); });
}

bool DatagramSocket::is_quiet() const {
    return std::all_of(links_.begin(), links_.end(),
                       [](const auto& link) { return link->is_quiet(); });
}

short DatagramSocket::ready(short wanted, bool arm_first) {
    const Lock lock(mutex_);
    if (arm_first) arm();
    progress();
    int events = error_ != 0 ? POLLERR : 0;
    if (has_news()) events |= POLLIN | POLLRDNORM;
    if (has_room()) events |= POLLOUT | POLLWRNORM;
    if (!can_read_ && !can_write_) events |= POLLHUP;
    return static_cast<short>(events & (wanted | POLLERR | POLLHUP));
}

// ---- the end

Result<void> DatagramSocket::shut_down(int how) {
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return Error{EINVAL, "no such side"};
    const Lock lock(mutex_);
    if (!connected_) return Error{ENOTCONN, "the rsocket has no peer"};
    if (how != SHUT_WR) can_read_ = false;
    if (how != SHUT_RD) can_write_ = false;
    // Wakes what sleeps in a receive, as it does for UDP.
    static_cast<void>(::shutdown(udp_, how));
    return {};
}

void DatagramSocket::close() {
    Lock lock(mutex_);
    const Deadline deadline = Clock::now() + kFarewell;
    while (wait(lock, true, deadline, &DatagramSocket::is_quiet) == EINTR) continue;
}

}  // namespace feroce::rsockets
