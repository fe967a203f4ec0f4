#include "port/outlet.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>

#include "port/address.hpp"
#include "port/error_queue.hpp"
#include "port/inet_socket.hpp"
#include "port/socket_calls.hpp"

namespace feroce::port {
namespace {

constexpr int kSendBufferBytes = 4 * 1024 * 1024;
// Setting options costs about as much as three packets' control messages.
constexpr int kTimesToAdopt = 16;

bool set_hop_limit(int fd, bool v4, int hops) {
    if (v4)
        return set_option(fd, IPPROTO_IP, IP_TTL, hops) &&
               set_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, hops);
    return set_option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, hops) &&
           set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, hops);
}

void set_multicast_interface(int fd, bool v4, std::uint32_t scope) {
    if (!v4) {
        set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(scope));
        return;
    }
    ip_mreqn through{};
    through.imr_ifindex = static_cast<int>(scope);
    ::setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &through, sizeof through);
}

void set_options(int fd, bool v4, std::uint32_t scope) {
    set_option(fd, SOL_SOCKET, SO_SNDBUF, kSendBufferBytes);
    queue_errors(fd, v4);
    set_hop_limit(fd, v4, kDefaultHopLimit);
    if (v4)
        set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
    else
        set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
    set_multicast_interface(fd, v4, scope);
}

}  // namespace

Manner manner_of(const transport::TransmitRun& run, bool segmented) {
    const std::uint8_t hops = run.path.hop_limit;
    return {.segment_size = static_cast<std::uint16_t>(segmented ? run.segment_size : 0),
            .hop_limit = hops == 0 ? kDefaultHopLimit : hops,
            .traffic_class = run.path.traffic_class};
}

Result<Outlet> Outlet::open(const Gid& address, std::uint32_t scope, RandomSource& random) {
    Outlet out;
    out.v4_ = address.is_v4();
    out.scope_ = scope;
    out.fd_ = inet_socket(out.v4_ ? AF_INET : AF_INET6, SOCK_NONBLOCK);
    if (!out.is_open()) return Error{errno, "no socket to send from"};
    set_options(out.fd(), out.v4_, scope);
    // RoCE v2 asks for source ports from 0xc000 up; any other works if those are taken.
    constexpr int kAttempts = 17;
    for (int attempt = 1; attempt <= kAttempts; ++attempt) {
        const bool last = attempt == kAttempts;
        const auto wanted = static_cast<std::uint16_t>(last ? 0 : 0xc000 | random.next());
        const SocketAddress own = socket_address(address, wanted, scope);
        if (::bind(out.fd(), &own.any, own.length) == 0) break;
        if (last || errno != EADDRINUSE) return Error{errno, "no address to send from"};
    }
    SocketAddress own;
    own.length = sizeof own.v6;
    if (::getsockname(out.fd(), &own.any, &own.length) != 0)
        return Error{errno, "no address to send from"};
    out.port_ = ntohs(out.v4_ ? own.v4.sin_port : own.v6.sin6_port);
    return out;
}

void Outlet::set_scope(std::uint32_t scope) {
    scope_ = scope;
    if (is_open()) set_multicast_interface(fd(), v4_, scope);
}

bool Outlet::suits(const Manner& wanted, std::size_t size) const {
    const bool is_one_segment = wanted.segment_size == 0 && size <= manner_.segment_size;
    return wanted.hop_limit == manner_.hop_limit && wanted.traffic_class == manner_.traffic_class &&
           (wanted.segment_size == manner_.segment_size || is_one_segment);
}

void Outlet::expect(const Manner& wanted, std::size_t size) {
    if (suits(wanted, size)) return;
    if (wanted != wanted_) times_ = 0;
    wanted_ = wanted;
    if (++times_ < kTimesToAdopt) return;
    times_ = 0;
    adopt(wanted);
}

// What the kernel refuses goes on as control messages.
void Outlet::adopt(const Manner& wanted) {
    if (set_option(fd(), SOL_UDP, UDP_SEGMENT, wanted.segment_size))
        manner_.segment_size = wanted.segment_size;
    if (set_hop_limit(fd(), v4_, wanted.hop_limit)) manner_.hop_limit = wanted.hop_limit;
    if (set_option(fd(), v4_ ? IPPROTO_IP : IPPROTO_IPV6, v4_ ? IP_TOS : IPV6_TCLASS,
                   wanted.traffic_class))
        manner_.traffic_class = wanted.traffic_class;
}

bool Outlet::forgo_segments() {
    if (manner_.segment_size == 0) return false;
    set_option(fd(), SOL_UDP, UDP_SEGMENT, 0);
    manner_.segment_size = 0;
    return true;
}

}  // namespace feroce::port
