#include "port/udp_port.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "port/address.hpp"
#include "port/clock.hpp"
#include "port/interfaces.hpp"

namespace feroce::port {
Result<std::unique_ptr<host::HostPort>> UdpPort::open(GroupMembership membership,
                                                      Settings settings) {
    std::unique_ptr<UdpPort> out(new UdpPort(std::move(membership), std::move(settings)));
    if (!out->open_waiting()) return Error{errno, "no epoll set for the UDP port"};
    return std::unique_ptr<host::HostPort>(std::move(out));
}

UdpPort::UdpPort(GroupMembership membership, Settings settings)
    : membership_(std::move(membership)),
      network_(std::move(settings.network)),
      devices_(std::move(settings.devices)),
      sender_(network_, settings.random, settings.port, settings.meddlers),
      v4_(membership_.socket_v4(), settings.meddlers.capture),
      v6_(membership_.socket_v6(), settings.meddlers.capture),
      handed_over_(membership_.group(), membership_.slot(), settings.meddlers.capture),
      capture_(settings.meddlers.capture) {
    v4_.tell_destinations(false);
    v6_.tell_destinations(false);
    if (handed_over_.fd() >= 0)
        membership_.group().table().set_parcel_name(membership_.slot(), handed_over_.name());
}

bool UdpPort::open_waiting() {
    return waiter_.open() && waiter_.add_arrivals(membership_.socket_v4()) &&
           waiter_.add_arrivals(membership_.socket_v6()) && waiter_.add_rare(handed_over_.fd()) &&
           waiter_.add_listener(membership_.group().listener());
}

bool UdpPort::poll(Instant now, device::Engine& engine) {
    UdpReceiver& hot = v6_is_hot_ ? v6_ : v4_;
    UdpReceiver& cold = v6_is_hot_ ? v4_ : v6_;
    // Most polls find nothing there, and a load is cheaper than an exchange.
    std::uint8_t look = look_.load(std::memory_order_relaxed);
    if (look != 0) look = look_.exchange(0, std::memory_order_relaxed);
    bool received = hot.poll(now, engine);
    if ((look & kLookAtHandedOver) != 0) received = handed_over_.poll(now, engine) || received;
    // An empty look costs a system call: the family that is silent gets one in sixteen.
    if ((look & kLookAtBoth) == 0 && ++cold_polls_ % 16 != 0) return received;
    if (!cold.poll(now, engine)) return received;
    if (!received) v6_is_hot_ = !v6_is_hot_;
    return true;
}

bool UdpPort::poll_all(Instant now, device::Engine& engine) {
    look_.fetch_or(kLookAtBoth | kLookAtHandedOver, std::memory_order_relaxed);
    return poll(now, engine);
}

int UdpPort::requests_fd() {
    if (!requests_) requests_.emplace(membership_.group(), capture_);
    return requests_->fd();
}

bool UdpPort::poll_requests(Instant now, device::Engine& engine) {
    return requests_ && requests_->poll(now, engine);
}

bool UdpPort::wait(Instant until) {
    const PortWaiter::Woken woken = waiter_.wait(std::min(until, membership_.group().next_look()));
    membership_.group().look_for_deaths(monotonic_now());
    if (woken.newcomer) membership_.group().serve();
    if (woken.arrived) look_.fetch_or(kLookAtBoth, std::memory_order_relaxed);
    if (woken.rare) look_.fetch_or(kLookAtHandedOver, std::memory_order_relaxed);
    return woken.arrived || woken.rare;
}

void UdpPort::transmit(std::span<const transport::TransmitRun> runs) {
    sender_.transmit(runs);
}

void UdpPort::tell_destinations() {
    v4_.tell_destinations(true);
    v6_.tell_destinations(true);
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

std::vector<host::Interface> UdpPort::interfaces() const {
    return network_->run([this] { return list_interfaces(devices_); });
}

bool UdpPort::join_group(const Gid& group) {
    // On all of them: a queue pair hears its group through whichever device it belongs to.
    bool joined = false;
    for (const host::Interface& i : interfaces()) joined |= change_membership(group, i.index, true);
    return joined;
}

// Without memory for the list it stays a member, as long as the socket is open.
void UdpPort::leave_group(const Gid& group) try {
    for (const host::Interface& i : interfaces()) change_membership(group, i.index, false);
} catch (const std::bad_alloc&) {
}

}  // namespace feroce::port
