// Addresses and routes. RoCE has no path to ask anybody for: the kernel's routing table gives the
// source address, and that the device; so everything is known at once and only the events follow.
#include <cerrno>

#include "process/undisturbed.hpp"
#include "rdmacm/address.hpp"
#include "rdmacm/devices.hpp"
#include "rdmacm/events.hpp"
#include "rdmacm/id.hpp"
#include "rdmacm/objects.hpp"

namespace feroce::rdmacm {
namespace {

// 4.096 us << 17 = 0.5 s, and seven retries of it: longer than a peer that is scheduled away, and
// shorter than the two seconds of hardware, as a software NIC may lose the last packet.
constexpr std::uint8_t kAckTimeout = 17;

// A link-local address means nothing without it.
std::uint32_t scope_of(const sockaddr_storage& address) {
    if (address.ss_family != AF_INET6) return 0;
    return reinterpret_cast<const sockaddr_in6&>(address).sin6_scope_id;
}

Result<void> bind_to(CmId& id, const Endpoint& local) {
    if (local.address.is_multicast() && !is_wildcard(local.address))
        return Error{EADDRNOTAVAIL, "a group address is nobody's own"};
    const Result<process::PortLease> lease =
        id.service->lease_port(static_cast<wire::PortSpace>(id.base.ps), local.address, local.port);
    TRY(lease);
    id.local = local.address;
    Result<void> attached = is_wildcard(local.address) ? Result<void>{} : attach_device(id);
    if (!attached) {
        id.local = Gid{};
        id.service->end_lease(*lease);
        return attached;
    }
    id.lease = *lease;
    store_address(local.address, lease->port, id.base.route.addr.src_storage);
    return {};
}

// Puts the source address into `id`; a bound one stays.
Result<void> choose_source(CmId& id, const sockaddr_storage& destination) {
    std::uint16_t port = id.lease.port;
    if (port == 0) port = host::free_port(id.service->random());
    if (id.base.verbs == nullptr) {
        const auto* generic = reinterpret_cast<const sockaddr*>(&destination);
        const Result<Gid> source =
            id.service->source_for(endpoint_of(generic)->address, scope_of(destination));
        TRY(source);
        id.local = *source;
    }
    store_address(id.local, port, id.base.route.addr.src_storage);
    return {};
}

Result<void> resolve(CmId& id, const sockaddr& destination) {
    const std::optional<Endpoint> remote = endpoint_of(&destination);
    ASSERT(remote.has_value());
    sockaddr_storage& stored = id.base.route.addr.dst_storage;
    std::memset(&stored, 0, sizeof stored);
    std::memcpy(&stored, &destination,
                destination.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    TRY(choose_source(id, stored));
    id.remote = remote->address;
    if (is_wildcard(id.remote)) {  // As with sockets: this machine.
        id.remote = id.local;
        store_address(id.remote, remote->port, stored);
    }
    TRY(attach_device(id));
    id.path.local = id.local;
    id.path.remote = id.remote;
    id.path.mtu = device_of(id).mtu;
    id.path.traffic_class = id.options.tos;
    id.path.ack_timeout = id.options.ack_timeout.value_or(kAckTimeout);
    return {};
}

int start_resolving(CmId& id, sockaddr* source, sockaddr* destination) {
    if (destination == nullptr || !endpoint_of(destination))
        return fail("rdma_resolve_addr", {EINVAL, "only IPv4 and IPv6 addresses"});
    // As in the kernel: an id that is bound stays so, whatever source is named here.
    const bool idle = id.stage.get() == Stage::Idle;
    if (source != nullptr && idle && rdma_bind_addr(&id.base, source) != 0) return -1;
    Entry entry(id, Call::ResolveAddress, "rdma_resolve_addr");
    if (entry.refused()) return -1;
    const Gid before = id.local;
    if (Result<void> resolved = resolve(id, *destination); resolved) {
        entry.keep();
        queue_event(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    } else {
        id.local = before;
        refuse("rdma_resolve_addr", resolved.error());
        queue_event(id, RDMA_CM_EVENT_ADDR_ERROR, -resolved.error().code);
    }
    return 0;
}

}  // namespace
}  // namespace feroce::rdmacm

using namespace feroce;
using namespace feroce::rdmacm;

int rdma_bind_addr(rdma_cm_id* base, sockaddr* address) {
    const Uncancelled call;
    const std::optional<Endpoint> local = address == nullptr ? std::nullopt : endpoint_of(address);
    if (!local) return fail("rdma_bind_addr", {EINVAL, "only IPv4 and IPv6 addresses"});
    CmId& id = id_of(base);
    Entry entry(id, Call::Bind, "rdma_bind_addr");
    return entry.refused() ? -1 : entry.end(bind_to(id, *local));
}

int rdma_resolve_addr(rdma_cm_id* base, sockaddr* source, sockaddr* destination, int) {
    CmId& id = id_of(base);
    {
        const process::Undisturbed part;
        if (start_resolving(id, source, destination) != 0) return -1;
    }
    return complete(id);
}

int rdma_resolve_route(rdma_cm_id* base, int) {
    CmId& id = id_of(base);
    {
        const process::Undisturbed part;
        Entry entry(id, Call::ResolveRoute, "rdma_resolve_route");
        if (entry.refused()) return -1;
        entry.keep();
        id.path.traffic_class = id.options.tos;
        if (id.options.ack_timeout) id.path.ack_timeout = *id.options.ack_timeout;
        set_path_record(id);
        queue_event(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    }
    return complete(id);
}
