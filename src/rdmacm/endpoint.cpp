// Endpoints: an id, its address and its queue pair in one call, for programs that wait.
#include <cerrno>
#include <utility>

#include "process/undisturbed.hpp"
#include "rdmacm/events.hpp"
#include "rdmacm/id.hpp"
#include "rdmacm/objects.hpp"

namespace feroce::rdmacm {
namespace {

constexpr int kResolveTimeoutMs = 2000;

int make_passive(CmId& id, const rdma_addrinfo& info, ibv_pd* pd, const ibv_qp_init_attr* qp) {
    if (rdma_bind_addr(&id.base, info.ai_src_addr) != 0) return -1;
    if (pd != nullptr) id.base.pd = pd;
    id.accepted_pd = pd;
    if (qp != nullptr) id.accepted_qp = *qp;
    return 0;
}

int make_active(CmId& id, const rdma_addrinfo& info, ibv_pd* pd, ibv_qp_init_attr* qp) {
    if (rdma_resolve_addr(&id.base, info.ai_src_addr, info.ai_dst_addr, kResolveTimeoutMs) != 0 ||
        rdma_resolve_route(&id.base, kResolveTimeoutMs) != 0)
        return -1;
    if (qp == nullptr) return 0;
    qp->qp_type = id.base.qp_type;
    return rdma_create_qp(&id.base, pd, qp);
}

void acknowledge(CmId& id) {
    const process::Undisturbed part;
    if (rdma_cm_event* event = std::exchange(id.base.event, nullptr)) rdma_ack_cm_event(event);
}

int take_request(CmId& listener, rdma_cm_event& event, rdma_cm_id*& out) {
    if (number_of(event.event) != RDMA_CM_EVENT_CONNECT_REQUEST) {
        const int status = event.status;
        rdma_ack_cm_event(&event);
        return fail("rdma_get_request", {status < 0 ? -status : EINVAL, "not a request"});
    }
    rdma_cm_id* child = event.id;
    if (listener.accepted_qp) {
        ibv_qp_init_attr wanted = *listener.accepted_qp;
        wanted.qp_type = child->qp_type;
        if (rdma_create_qp(child, listener.accepted_pd, &wanted) != 0) {
            const int code = errno;
            rdma_reject(child, nullptr, 0);
            rdma_ack_cm_event(&event);
            rdma_destroy_id(child);
            errno = code;
            return -1;
        }
    }
    child->event = &event;  // Acknowledged by the next call on the child, or with its end.
    out = child;
    return 0;
}

}  // namespace
}  // namespace feroce::rdmacm

using namespace feroce;
using namespace feroce::rdmacm;

int rdma_create_ep(rdma_cm_id** out, rdma_addrinfo* info, ibv_pd* pd, ibv_qp_init_attr* qp) {
    return within_memory("rdma_create_ep", [&]() -> int {
        CmId* id = create(nullptr, nullptr, static_cast<rdma_port_space>(info->ai_port_space),
                          static_cast<ibv_qp_type>(info->ai_qp_type));
        if (id == nullptr) return -1;
        const bool passive = (info->ai_flags & RAI_PASSIVE) != 0;
        const int made =
            passive ? make_passive(*id, *info, pd, qp) : make_active(*id, *info, pd, qp);
        if (made != 0) {
            const int code = errno;
            rdma_destroy_ep(&id->base);
            errno = code;
            return -1;
        }
        *out = &id->base;
        return 0;
    });
}

void rdma_destroy_ep(rdma_cm_id* base) {
    rdma_destroy_qp(base);
    rdma_destroy_srq(base);
    rdma_destroy_id(base);
}

int rdma_get_request(rdma_cm_id* listen, rdma_cm_id** out) {
    CmId& id = id_of(listen);
    if (!id.synchronous)
        return fail("rdma_get_request",
                    {EINVAL, "the listener must have no channel of the caller"});
    if (Entry entry(id, Call::GetRequest, "rdma_get_request"); entry.refused()) return -1;
    acknowledge(id);
    // Kept in the listener until it is the child's: a thread may go away in between.
    if (rdma_get_cm_event(listen->channel, &listen->event) != 0) return -1;
    const process::Undisturbed part;
    rdma_cm_event* event = std::exchange(listen->event, nullptr);
    return take_request(id, *event, *out);
}
