#include "port/udp_port.hpp"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "port/address.hpp"
#include "port/clock.hpp"
#include "port/interfaces.hpp"

namespace feroce::port {
namespace {

// What woke wait(), in epoll_event::data.
enum Source : std::uint32_t { kArrivals, kDoorbell, kListener, kChanges };

bool add_to(int set, int fd, std::uint32_t events, Source source) {
    epoll_event event{};
    event.events = events;
    event.data.u32 = source;
    return ::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0;
}

Fd open_changes() {
    Fd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
    const bool bound = fd.valid() && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                                            sizeof address) == 0;
    return bound ? std::move(fd) : Fd();
}

// What has changed is read from the tables; here only that something has.
bool take_changes(int fd) {
    char byte;
    bool any = false;
    while (::recv(fd, &byte, 1, MSG_TRUNC) > 0 || errno == ENOBUFS) any = true;
    return any;
}

}  // namespace

Result<std::unique_ptr<device::HostPort>> UdpPort::open(GroupMembership membership,
                                                        Settings settings) {
    std::unique_ptr<UdpPort> out(new UdpPort(std::move(membership), std::move(settings)));
    if (!out->open_waiting()) return Error{errno, "no epoll set for the UDP port"};
    return std::unique_ptr<device::HostPort>(std::move(out));
}

UdpPort::UdpPort(GroupMembership membership, Settings settings)
    : membership_(std::move(membership)),
      devices_(std::move(settings.devices)),
      sender_(settings.random, settings.port, settings.meddlers),
      v4_(membership_.socket_v4(), settings.meddlers.capture),
      v6_(membership_.socket_v6(), settings.meddlers.capture),
      capture_(settings.meddlers.capture) {}

bool UdpPort::open_waiting() {
    arrivals_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
    waiting_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
    doorbell_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    changes_ = open_changes();
    if (!arrivals_.valid() || !waiting_.valid() || !doorbell_.valid()) return false;
    const int v6 = membership_.socket_v6();
    return add_to(arrivals_.get(), membership_.socket_v4(), EPOLLIN, kArrivals) &&
           (v6 < 0 || add_to(arrivals_.get(), v6, EPOLLIN, kArrivals)) &&
           add_to(waiting_.get(), arrivals_.get(), EPOLLONESHOT, kArrivals) &&
           add_to(waiting_.get(), doorbell_.get(), EPOLLIN, kDoorbell) &&
           // Without netlink (some sandboxes) changes go unnoticed; nothing else does.
           (!changes_.valid() || add_to(waiting_.get(), changes_.get(), EPOLLIN, kChanges)) &&
           // Exclusive: a newcomer need not wake every member of the group.
           add_to(waiting_.get(), membership_.group().listener(), EPOLLIN | EPOLLEXCLUSIVE,
                  kListener);
}

bool UdpPort::poll(Instant now, device::Engine& engine) {
    UdpReceiver& hot = v6_is_hot_ ? v6_ : v4_;
    UdpReceiver& cold = v6_is_hot_ ? v4_ : v6_;
    const bool both = look_at_both_.exchange(false, std::memory_order_relaxed);
    const bool received = hot.poll(now, engine);
    // An empty look costs a system call: the family that is silent gets one in sixteen.
    if (received && !both && ++cold_polls_ % 16 != 0) return true;
    if (!received && !both && ++cold_polls_ % 16 != 0) return false;
    if (!cold.poll(now, engine)) return received;
    if (!received) v6_is_hot_ = !v6_is_hot_;
    return true;
}

int UdpPort::requests_fd() {
    if (!requests_) requests_.emplace(membership_.group(), capture_);
    return requests_->fd();
}

bool UdpPort::poll_requests(Instant now, device::Engine& engine) {
    return requests_ && requests_->poll(now, engine);
}

void UdpPort::set_armed(bool armed) {
    epoll_event event{};
    event.events = (armed ? static_cast<std::uint32_t>(EPOLLIN) : 0u) | EPOLLONESHOT;
    event.data.u32 = kArrivals;
    ::epoll_ctl(waiting_.get(), EPOLL_CTL_MOD, arrivals_.get(), &event);
}

void UdpPort::arm() {
    set_armed(true);
}
void UdpPort::disarm() {
    set_armed(false);
}

bool UdpPort::wait(Instant until) {
    timespec timeout{};
    const timespec* limit = nullptr;
    if (until != kNever) {
        const Duration left = std::max(until - monotonic_now(), Duration::zero());
        timeout.tv_sec = left / std::chrono::seconds(1);
        timeout.tv_nsec = (left % std::chrono::seconds(1)).count();
        limit = &timeout;
    }
    std::array<epoll_event, 4> events;
    const int count = ::epoll_pwait2(waiting_.get(), events.data(), events.size(), limit, nullptr);
    bool arrived = false;
    for (int i = 0; i < count; ++i) {
        const std::uint32_t source = events[static_cast<std::size_t>(i)].data.u32;
        if (source == kListener) {
            membership_.group().serve();
        } else if (source == kDoorbell) {
            std::uint64_t value;
            (void)!::read(doorbell_.get(), &value, sizeof value);
            // seq_cst: a wake() after this writes again; one before has been answered.
            rung_.store(false);
        } else if (source == kChanges) {
            changed_ = take_changes(changes_.get());
        } else {
            arrived = true;
        }
    }
    if (arrived) look_at_both_.store(true, std::memory_order_relaxed);
    return arrived;
}

bool UdpPort::interfaces_changed() {
    return std::exchange(changed_, false);
}

void UdpPort::wake() {
    if (rung_.exchange(true)) return;
    const std::uint64_t one = 1;
    (void)!::write(doorbell_.get(), &one, sizeof one);
}

void UdpPort::transmit(std::span<const transport::TransmitRun> runs) {
    sender_.transmit(runs);
}

bool UdpPort::change_membership(const Gid& group, std::uint32_t interface, bool join) {
    if (group.is_v4()) {
        ip_mreqn request{};
        request.imr_multiaddr.s_addr = htonl(group.v4());
        request.imr_ifindex = static_cast<int>(interface);
        return ::setsockopt(membership_.socket_v4(), IPPROTO_IP,
                            join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &request,
                            sizeof request) == 0;
    }
    ipv6_mreq request{};
    std::memcpy(&request.ipv6mr_multiaddr, group.raw.data(), group.raw.size());
    request.ipv6mr_interface = interface;
    return membership_.socket_v6() >= 0 &&
           ::setsockopt(membership_.socket_v6(), IPPROTO_IPV6,
                        join ? IPV6_ADD_MEMBERSHIP : IPV6_DROP_MEMBERSHIP, &request,
                        sizeof request) == 0;
}

bool UdpPort::join_group(const Gid& group) {
    // On all of them: a queue pair hears its group through whichever device it belongs to.
    bool joined = false;
    for (const device::Interface& i : list_interfaces(devices_))
        joined |= change_membership(group, i.index, true);
    return joined;
}

void UdpPort::leave_group(const Gid& group) {
    for (const device::Interface& i : list_interfaces(devices_))
        change_membership(group, i.index, false);
}

}  // namespace feroce::port
