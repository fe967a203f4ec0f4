// Addresses and routes. RoCE has no path to ask anybody for: the kernel's routing table gives the
// source address, and that the device; so everything is known at once and only the events follow.
#include <algorithm>
#include <cerrno>

#include "process/undisturbed.hpp"
#include "rdmacm/address.hpp"
#include "rdmacm/devices.hpp"
#include "rdmacm/events.hpp"
#include "rdmacm/id.hpp"
#include "rdmacm/objects.hpp"
#include "wire/cma.hpp"

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
        return Error{EADDRNOTAVAIL, "a multicast address belongs to no interface"};
    const Result<process::PortLease> lease =
        id.service->lease_port(static_cast<wire::PortSpace>(id.base.ps), local.address, local.port);
    TRY(lease);
    Rollback undo([&] {
        id.local = Gid{};
        id.service->end_lease(*lease);
    });
    id.local = local.address;
    // As in the kernel, a loopback address names no device: any of them can reach this machine. But
    // where the only device is the loopback device, programs that expect one get it.
    const bool is_only_device =
        devices(*id.library).size() == 1 && device_with(*id.library, local.address) != nullptr;
    const bool any_device =
        is_wildcard(local.address) || (wire::is_loopback(local.address) && !is_only_device);
    if (!any_device) TRY(attach_device(id));
    undo.keep();
    id.lease = *lease;
    store_address(local.address, lease->port, id.base.route.addr.src_storage);
    return {};
}

// This machine, asked for by a loopback address that no device has: as in the kernel the first
// device's own address serves on both ends, and only the program's addresses say loopback.
Result<void> choose_own_gid(CmId& id) {
    if (id.base.verbs != nullptr) return {};  // Bound to a device.
    const std::vector<Device*> all = devices(*id.library);
    // The first of a table is a link-local address only where there is no other.
    const auto good = [](const Device* device) {
        const Gid gid = first_gid(device->context);
        return !gid.is_zero() && !is_link_local(gid);
    };
    const auto usable = [](const Device* device) { return !first_gid(device->context).is_zero(); };
    auto found = std::find_if(all.begin(), all.end(), good);
    if (found == all.end()) found = std::find_if(all.begin(), all.end(), usable);
    if (found == all.end()) return Error{ENODEV, "no device has an address"};
    id.local = first_gid((*found)->context);
    return {};
}

// Puts both Gids and the source address into `id`; one that it is bound to stays if it can.
Result<void> choose_gids(CmId& id, const Gid& destination, std::uint32_t scope) {
    const std::uint16_t port =
        id.lease.port != 0 ? id.lease.port : host::free_port(id.service->random());
    sockaddr_storage& stored = id.base.route.addr.src_storage;
    const bool attached = id.base.verbs != nullptr;
    const bool bound_to_loopback = wire::is_loopback(id.local);
    if (wire::is_loopback(destination) &&
        (attached || device_with(*id.library, destination) == nullptr)) {
        // What the program is bound to stays what it sees.
        const Gid source = attached || bound_to_loopback ? id.local : destination;
        TRY(choose_own_gid(id));
        id.remote = id.local;
        store_address(source, port, stored);
        return {};
    }
    const bool bound =
        attached || (bound_to_loopback && device_with(*id.library, id.local) != nullptr);
    if (!bound) {
        const Result<Gid> source = id.service->source_for(destination, scope);
        TRY(source);
        id.local = *source;
    }
    id.remote = destination;
    store_address(id.local, port, stored);
    return {};
}

Result<void> resolve(CmId& id, const sockaddr& destination) {
    const std::optional<Endpoint> remote = endpoint_of(&destination);
    ASSERT(remote.has_value());
    sockaddr_storage& stored = id.base.route.addr.dst_storage;
    std::memset(&stored, 0, sizeof stored);
    std::memcpy(&stored, &destination,
                destination.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    Gid wanted = remote->address;
    if (is_wildcard(wanted)) {  // As with sockets: this machine.
        wanted = id.base.verbs != nullptr ? id.local : loopback_like(wanted);
        store_address(wanted, remote->port, stored);
    }
    TRY(choose_gids(id, wanted, scope_of(stored)));
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
    Events event = make_event(id, RDMA_CM_EVENT_ADDR_RESOLVED);
    Rollback undo([&id, before = id.local] { id.local = before; });
    if (Result<void> resolved = resolve(id, *destination); resolved) {
        undo.keep();
        entry.keep();
    } else {
        event.front()->base.event = RDMA_CM_EVENT_ADDR_ERROR;
        event.front()->base.status = -refuse("rdma_resolve_addr", resolved.error());
    }
    queue_event(std::move(event));
    return 0;
}

}  // namespace
}  // namespace feroce::rdmacm

using namespace feroce;
using namespace feroce::rdmacm;

int rdma_bind_addr(rdma_cm_id* base, sockaddr* address) {
    return abi_call("rdma_bind_addr", [&]() -> int {
        const std::optional<Endpoint> local =
            address == nullptr ? std::nullopt : endpoint_of(address);
        if (!local) return fail("rdma_bind_addr", {EINVAL, "only IPv4 and IPv6 addresses"});
        CmId& id = id_of(base);
        Entry entry(id, Call::Bind, "rdma_bind_addr");
        return entry.refused() ? -1 : entry.end(bind_to(id, *local));
    });
}

int rdma_resolve_addr(rdma_cm_id* base, sockaddr* source, sockaddr* destination, int) {
    return within_memory("rdma_resolve_addr", [&]() -> int {
        CmId& id = id_of(base);
        {
            const process::Undisturbed part(id.synchronous);
            if (start_resolving(id, source, destination) != 0) return -1;
        }
        return complete(id);
    });
}

int rdma_resolve_route(rdma_cm_id* base, int) {
    return within_memory("rdma_resolve_route", [&]() -> int {
        CmId& id = id_of(base);
        {
            const process::Undisturbed part(id.synchronous);
            Entry entry(id, Call::ResolveRoute, "rdma_resolve_route");
            if (entry.refused()) return -1;
            Events event = make_event(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
            entry.keep();
            id.path.traffic_class = id.options.tos;
            if (id.options.ack_timeout) id.path.ack_timeout = *id.options.ack_timeout;
            set_path_record(id);
            queue_event(std::move(event));
        }
        return complete(id);
    });
}
