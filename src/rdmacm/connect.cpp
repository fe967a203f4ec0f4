// Connections: listening, asking, accepting, refusing and ending.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "process/undisturbed.hpp"
#include "rdmacm/address.hpp"
#include "rdmacm/devices.hpp"
#include "rdmacm/events.hpp"
#include "rdmacm/id.hpp"
#include "rdmacm/objects.hpp"
#include "wire/cma.hpp"

namespace feroce::rdmacm {
namespace {

constexpr std::size_t kBacklog = 1024;

ByteView private_data(const rdma_conn_param* p) {
    if (p == nullptr || p->private_data == nullptr) return {};
    return {static_cast<const std::byte*>(p->private_data), p->private_data_len};
}

// The private data of a request begins with the addresses.
std::vector<std::byte> request_data(CmId& id, ByteView user) {
    std::vector<std::byte> out(wire::CmaHeader::kSize);
    const Endpoint source = *endpoint_of(rdma_get_local_addr(&id.base));
    const Endpoint destination = *endpoint_of(rdma_get_peer_addr(&id.base));
    wire::CmaHeader::make(source.address, destination.address, source.port)
        .emit(std::span(out).first<wire::CmaHeader::kSize>());
    out.insert(out.end(), user.begin(), user.end());
    return out;
}

cm::TransportType transport_of(const CmId& id) {
    switch (id.base.qp_type) {
        case IBV_QPT_UC:
            return cm::TransportType::Uc;
        case IBV_QPT_XRC_SEND:
        case IBV_QPT_XRC_RECV:
            return cm::TransportType::Extended;
        default:
            return cm::TransportType::Rc;
    }
}

wire::ServiceId service_of(const CmId& id, const sockaddr_storage& address) {
    return wire::make_service_id(static_cast<wire::PortSpace>(id.base.ps), port_in(address));
}

// What the program wants, "as much as possible" being 0xff; `most` is what the device can, or what
// the peer offers.
Result<std::uint8_t> settle_depth(std::uint8_t wanted, int most) {
    if (wanted == RDMA_MAX_RESP_RES) return static_cast<std::uint8_t>(most);
    if (wanted > most)
        return Error{EINVAL, "more responder resources or initiator depth than the device has"};
    return wanted;
}

struct Depths {
    std::uint8_t serve;
    std::uint8_t ask;
    bool operator==(const Depths&) const = default;
};

Depths depths_of(const CmId& id) {
    return {id.responder_resources, id.initiator_depth};
}

// `offered`: by the request that is accepted, no more than which makes sense.
Result<Depths> settle_depths(const CmId& id, const rdma_conn_param* p, bool offered) {
    const ibv_device_attr& limits = device_of(id).attributes;
    int serve = limits.max_qp_rd_atom;
    int ask = limits.max_qp_init_rd_atom;
    std::uint8_t wanted_serve = RDMA_MAX_RESP_RES;
    std::uint8_t wanted_ask = RDMA_MAX_INIT_DEPTH;
    if (p != nullptr) {
        wanted_serve = p->responder_resources;
        wanted_ask = p->initiator_depth;
    }
    if (offered && wanted_serve == RDMA_MAX_RESP_RES)
        serve = std::min<int>(serve, id.responder_resources);
    if (offered && wanted_ask == RDMA_MAX_INIT_DEPTH) ask = std::min<int>(ask, id.initiator_depth);
    const Result<std::uint8_t> served = settle_depth(wanted_serve, serve);
    TRY(served);
    const Result<std::uint8_t> asked = settle_depth(wanted_ask, ask);
    TRY(asked);
    return Depths{*served, *asked};
}

void set_depths(CmId& id, Depths depths) {
    id.responder_resources = depths.serve;
    id.initiator_depth = depths.ask;
}

cm::Endpoint local_endpoint(const CmId& id, const rdma_conn_param* p) {
    cm::Endpoint e;
    e.starting_psn = id.starting_psn;
    e.transport = transport_of(id);
    e.responder_resources = id.responder_resources;
    e.initiator_depth = id.initiator_depth;
    if (p != nullptr) {
        e.retry_count = std::min<std::uint8_t>(p->retry_count, 7);
        e.rnr_retry_count = std::min<std::uint8_t>(p->rnr_retry_count, 7);
        e.flow_control = p->flow_control != 0;
        e.qpn = Qpn{p->qp_num};
        e.srq = p->srq != 0;
    }
    if (id.base.qp != nullptr) {
        e.qpn = Qpn{id.base.qp->qp_num};
        e.srq = id.base.qp->srq != nullptr;
    }
    return e;
}

Result<void> ask(CmId& id, const rdma_conn_param* p) {
    const std::vector<std::byte> data = request_data(id, private_data(p));
    const wire::ServiceId service = service_of(id, id.base.route.addr.dst_storage);
    if (is_ud(id))
        return id.service->sidr_request({.path = id.path, .service = service, .private_data = data},
                                        &id, id.connection);
    const Result<Depths> depths = settle_depths(id, p, false);
    TRY(depths);
    set_depths(id, *depths);
    const cm::Endpoint endpoint = local_endpoint(id, p);
    if (endpoint.qpn.raw == 0) return Error{EINVAL, "there is no queue pair to connect"};
    id.retry_count = endpoint.retry_count;
    return id.service->connect(
        {.path = id.path, .service = service, .endpoint = endpoint, .private_data = data}, &id,
        id.connection);
}

// With room for the events of the id before the service knows it.
template <class Enter>
Result<void> enter_service(CmId& id, std::size_t events, Enter&& enter) {
    Rollback drop([&id] { id.spare.clear(); });
    reserve_events(id, events);
    TRY(enter());
    drop.keep();
    return {};
}

Result<void> connect(CmId& id, const rdma_conn_param* p) {
    return enter_service(id, cm::kEventsMax, [&] { return ask(id, p); });
}

Result<void> listen(CmId& id, std::size_t backlog) {
    const Result<cm::ListenerId> listener =
        id.service->listen({.service = service_of(id, id.base.route.addr.src_storage),
                            .address = id.local,
                            .v6_only = id.options.v6_only,
                            .backlog = backlog},
                           &id);
    TRY(listener);
    id.listener = *listener;
    return {};
}

Result<void> accept_datagrams(CmId& id, const rdma_conn_param* p) {
    Qpn qpn{p == nullptr ? 0 : p->qp_num};
    if (id.base.qp != nullptr) qpn = Qpn{id.base.qp->qp_num};
    return id.service->sidr_reply(
        *id.connection, {.qpn = qpn, .qkey = Qkey{RDMA_UDP_QKEY}, .private_data = private_data(p)});
}

Result<void> accept(CmId& id, const rdma_conn_param* p) {
    if (is_ud(id)) return accept_datagrams(id, p);
    const Result<Depths> depths = settle_depths(id, p, true);
    TRY(depths);
    const bool goes_on = id.base.qp != nullptr &&
                         (id.base.qp->state == IBV_QPS_RTR || id.base.qp->state == IBV_QPS_RTS);
    if (goes_on && *depths != depths_of(id))
        return Error{EINVAL, "a call that failed has connected the queue pair for other depths"};
    set_depths(id, *depths);
    const cm::Endpoint endpoint = local_endpoint(id, p);
    if (endpoint.qpn.raw == 0) return Error{EINVAL, "there is no queue pair to connect"};
    if (id.base.qp != nullptr) TRY(connect_qp(id));
    return id.service->accept(*id.connection,
                              {.endpoint = endpoint, .private_data = private_data(p)});
}

int reject(rdma_cm_id* base, cm::RejectReason reason, const void* data, std::uint8_t length) {
    return abi_call("rdma_reject", [&]() -> int {
        CmId& id = id_of(base);
        Entry entry(id, Call::Reject, "rdma_reject");
        if (entry.refused()) return -1;
        const ByteView bytes(static_cast<const std::byte*>(data), data == nullptr ? 0 : length);
        return entry.end(
            is_ud(id)
                ? id.service->sidr_reply(
                      *id.connection, {.status = cm::SidrStatus::Rejected, .private_data = bytes})
                : id.service->reject(*id.connection, {.reason = reason, .private_data = bytes}));
    });
}

}  // namespace
}  // namespace feroce::rdmacm

using namespace feroce;
using namespace feroce::rdmacm;

int rdma_listen(rdma_cm_id* base, int backlog) {
    return abi_call("rdma_listen", [&]() -> int {
        CmId& id = id_of(base);
        if (id.stage.get() == Stage::Idle) {
            sockaddr_in any{};
            any.sin_family = AF_INET;
            if (rdma_bind_addr(base, reinterpret_cast<sockaddr*>(&any)) != 0) return -1;
        }
        Entry entry(id, Call::Listen, "rdma_listen");
        if (entry.refused()) return -1;
        const std::size_t most = backlog > 0 ? static_cast<std::size_t>(backlog) : kBacklog;
        // One event: that its address or device is gone.
        return entry.end(enter_service(id, 1, [&] { return rdmacm::listen(id, most); }));
    });
}

int rdma_connect(rdma_cm_id* base, rdma_conn_param* parameters) {
    return within_memory("rdma_connect", [&]() -> int {
        CmId& id = id_of(base);
        {
            const process::Undisturbed part(id.synchronous);
            Entry entry(id, Call::Connect, "rdma_connect");
            if (entry.refused() || entry.end(rdmacm::connect(id, parameters)) != 0) return -1;
        }
        return complete(id);
    });
}

int rdma_accept(rdma_cm_id* base, rdma_conn_param* parameters) {
    return within_memory("rdma_accept", [&]() -> int {
        CmId& id = id_of(base);
        {
            const process::Undisturbed part(id.synchronous);
            Entry entry(id, Call::Accept, "rdma_accept");
            if (entry.refused() || entry.end(rdmacm::accept(id, parameters)) != 0) return -1;
        }
        if (!is_ud(id)) return complete(id);
        id.stage.set(Stage::Over);  // Nobody answers the answer to a datagram request.
        return 0;
    });
}

int rdma_reject(rdma_cm_id* base, const void* data, std::uint8_t length) {
    return reject(base, cm::RejectReason::ConsumerReject, data, length);
}

int rdma_reject_ece(rdma_cm_id* base, const void* data, std::uint8_t length) {
    constexpr auto kVendorOptionNotSupported = static_cast<cm::RejectReason>(35);
    return reject(base, kVendorOptionNotSupported, data, length);
}

int rdma_establish(rdma_cm_id* base) {
    return abi_call("rdma_establish", [&]() -> int {
        CmId& id = id_of(base);
        if (base->qp != nullptr)
            return fail("rdma_establish",
                        {EINVAL, "an id with a queue pair establishes by itself"});
        Entry entry(id, Call::Establish, "rdma_establish");
        return entry.refused() ? -1 : entry.end(id.service->establish(*id.connection));
    });
}

int rdma_notify(rdma_cm_id* base, ibv_event_type event) {
    return abi_call("rdma_notify", [&]() -> int {
        CmId& id = id_of(base);
        if (event != IBV_EVENT_COMM_EST)
            return fail("rdma_notify", {EINVAL, "only IBV_EVENT_COMM_EST means something here"});
        Entry entry(id, Call::Notify, "rdma_notify");
        return entry.refused() ? -1 : entry.end(id.service->establish(*id.connection));
    });
}

int rdma_disconnect(rdma_cm_id* base) {
    return within_memory("rdma_disconnect", [&]() -> int {
        CmId& id = id_of(base);
        {
            const process::Undisturbed part(id.synchronous);
            Entry entry(id, Call::Disconnect, "rdma_disconnect");
            // The queue pair stops even if the peer was faster and there is nothing left to tell
            // it.
            if (!entry.refused() || id.stage.get() == Stage::Over) stop_qp(id);
            if (entry.refused()) return -1;
            if (entry.no_effect()) return 0;
            if (entry.end(id.service->disconnect(*id.connection)) != 0) return -1;
        }
        return complete(id);
    });
}

int rdma_set_local_ece(rdma_cm_id* base, ibv_ece* ece) {
    if (base->qp != nullptr || ece == nullptr || ece->comp_mask != 0)
        return fail("rdma_set_local_ece", {EINVAL, "for ids without queue pair, no mask"});
    // We have no options to negotiate, so the peer hears of none, which it must expect.
    return 0;
}

int rdma_get_remote_ece(rdma_cm_id* base, ibv_ece* ece) {
    if (base->qp != nullptr || ece == nullptr)
        return fail("rdma_get_remote_ece", {EINVAL, "for ids without queue pair"});
    *ece = {};
    return 0;
}
