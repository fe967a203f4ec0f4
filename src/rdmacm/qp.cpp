#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdmacm/address.hpp"
#include "rdmacm/devices.hpp"
#include "rdmacm/id.hpp"

namespace feroce::rdmacm {
namespace {

// 0.64 ms: how long a peer waits that found no receive posted.
constexpr std::uint8_t kMinRnrTimer = 12;

constexpr std::uint32_t kInlineBytes = 64;

bool is_reliable(const CmId& id) {
    return id.base.qp_type != IBV_QPT_UC && !is_ud(id);
}

int fill_init(const CmId& id, ibv_qp_attr& a) {
    a.pkey_index = 0;
    a.port_num = 1;
    const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (is_ud(id)) {
        a.qkey = RDMA_UDP_QKEY;
        return mask | IBV_QP_QKEY;
    }
    a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    if (is_reliable(id)) a.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    return mask | IBV_QP_ACCESS_FLAGS;
}

int fill_rtr(const CmId& id, ibv_qp_attr& a) {
    if (is_ud(id)) return IBV_QP_STATE;
    a.ah_attr = address_vector(id);
    a.path_mtu = static_cast<ibv_mtu>(id.path.mtu);
    a.dest_qp_num = id.peer.qpn.raw;
    a.rq_psn = id.starting_psn.raw();
    const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (!is_reliable(id)) return mask;
    a.max_dest_rd_atomic = id.responder_resources;
    a.min_rnr_timer = kMinRnrTimer;
    // An XRC initiator serves nobody.
    if (id.base.qp_type == IBV_QPT_XRC_SEND) return mask;
    return mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

int fill_rts(const CmId& id, ibv_qp_attr& a) {
    a.sq_psn = id.peer.starting_psn.raw();
    if (!is_reliable(id)) return IBV_QP_STATE | IBV_QP_SQ_PSN;
    a.timeout = id.options.ack_timeout.value_or(id.path.ack_timeout);
    const int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
    if (id.base.qp_type == IBV_QPT_XRC_RECV) return mask;  // And an XRC target asks nobody.
    a.retry_cnt = id.retry_count;
    a.rnr_retry = id.peer.rnr_retry_count;
    a.max_rd_atomic = id.initiator_depth;
    return mask | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

Result<void> move_to(CmId& id, ibv_qp_state state) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    int mask = 0;
    if (rdma_init_qp_attr(&id.base, &attributes, &mask) != 0)
        return Error{errno, "the id is not ready for this state of its queue pair"};
    if (const int code = ibv_modify_qp(id.base.qp, &attributes, mask); code != 0)
        return Error{code, "the queue pair of the id cannot be moved on"};
    return {};
}

Result<void> start_qp(CmId& id) {
    TRY(move_to(id, IBV_QPS_INIT));
    if (!is_ud(id)) return {};
    TRY(move_to(id, IBV_QPS_RTR));
    return move_to(id, IBV_QPS_RTS);
}

// One completion queue with a channel of its own.
bool make_cq(CmId& id, std::uint32_t size, ibv_comp_channel*& channel, ibv_cq*& cq) {
    channel = ibv_create_comp_channel(id.base.verbs);
    if (channel == nullptr) return false;
    const int entries = static_cast<int>(std::max(size, 1u));
    cq = ibv_create_cq(id.base.verbs, entries, &id.base, channel, 0);
    return cq != nullptr;
}

void destroy_cqs(CmId& id) {
    if (!id.owns_cqs) return;
    for (ibv_cq** cq : {&id.base.send_cq, &id.base.recv_cq}) {
        if (*cq != nullptr) ibv_destroy_cq(*cq);
        *cq = nullptr;
    }
    for (ibv_comp_channel** channel : {&id.base.send_cq_channel, &id.base.recv_cq_channel}) {
        if (*channel != nullptr) ibv_destroy_comp_channel(*channel);
        *channel = nullptr;
    }
    id.owns_cqs = false;
}

Result<void> supply_cqs(CmId& id, ibv_qp_init_attr_ex& a) {
    id.owns_cqs = true;
    const bool wants_recv = a.recv_cq == nullptr && id.base.recv_cq == nullptr &&
                            a.qp_type != IBV_QPT_XRC_SEND && a.qp_type != IBV_QPT_XRC_RECV;
    const bool wants_send =
        a.send_cq == nullptr && id.base.send_cq == nullptr && a.qp_type != IBV_QPT_XRC_RECV;
    if (wants_recv && !make_cq(id, a.cap.max_recv_wr, id.base.recv_cq_channel, id.base.recv_cq))
        return Error{errno, "no completion queue for receives"};
    if (wants_send && !make_cq(id, a.cap.max_send_wr, id.base.send_cq_channel, id.base.send_cq))
        return Error{errno, "no completion queue for sends"};
    if (a.recv_cq == nullptr) a.recv_cq = id.base.recv_cq;
    if (a.send_cq == nullptr) a.send_cq = id.base.send_cq;
    return {};
}

Result<ibv_xrcd*> xrc_domain(CmId& id) {
    Device& device = device_of(id);
    if (device.xrcd != nullptr) return device.xrcd;
    ibv_xrcd_init_attr attributes{};
    attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attributes.fd = -1;
    attributes.oflags = O_CREAT;
    device.xrcd = ibv_open_xrcd(id.base.verbs, &attributes);
    if (device.xrcd == nullptr) return Error{errno, "no XRC domain"};
    return device.xrcd;
}

bool connected(ibv_qp_type type) {
    return type == IBV_QPT_RC || type == IBV_QPT_UC;
}

Result<void> check(CmId& id, const ibv_qp_init_attr_ex& a) {
    if (id.base.qp != nullptr) return Error{EINVAL, "the id has a queue pair already"};
    if (id.base.verbs == nullptr) return Error{EINVAL, "the id is not bound to a device yet"};
    const bool own_pd = (a.comp_mask & IBV_QP_INIT_ATTR_PD) != 0 && a.pd != nullptr;
    if (own_pd && a.pd->context != id.base.verbs)
        return Error{EINVAL, "the protection domain is of another device than the id"};
    if (a.qp_type != id.base.qp_type && !(connected(a.qp_type) && connected(id.base.qp_type)))
        return Error{EINVAL, "the type does not fit the port space of the id"};
    return {};
}

Result<void> make_qp(CmId& id, ibv_qp_init_attr_ex& a) {
    if ((a.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || a.pd == nullptr) {
        a.comp_mask |= IBV_QP_INIT_ATTR_PD;
        a.pd = id.base.pd;
    }
    if (a.qp_type == IBV_QPT_XRC_RECV && (a.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0) {
        const Result<ibv_xrcd*> xrcd = xrc_domain(id);
        TRY(xrcd);
        a.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
        a.xrcd = *xrcd;
    }
    TRY(supply_cqs(id, a));
    if (a.srq == nullptr) a.srq = id.base.srq;
    // Programs send small messages inline without asking: every NIC can do that much.
    a.cap.max_inline_data = std::max(a.cap.max_inline_data, kInlineBytes);
    id.base.qp_type = a.qp_type;
    id.base.qp = ibv_create_qp_ex(id.base.verbs, &a);
    if (id.base.qp == nullptr) return Error{errno, "the device refuses the queue pair"};
    id.base.pd = a.pd;
    return start_qp(id);
}

}  // namespace

ibv_ah_attr address_vector(const CmId& id) {
    ibv_ah_attr a{};
    a.is_global = 1;
    a.grh.dgid = gid_to_ibv(id.remote);
    a.grh.sgid_index = static_cast<std::uint8_t>(std::max(gid_index(device_of(id), id.local), 0));
    a.grh.hop_limit = id.path.hop_limit;
    a.grh.traffic_class = id.path.traffic_class;
    a.grh.flow_label = id.path.flow_label;
    a.sl = id.path.service_level;
    a.port_num = 1;
    return a;
}

// A call that failed later, because memory was wanting for instance, is made again: this one goes
// on where that one stopped.
Result<void> connect_qp(CmId& id) {
    const ibv_qp_state& state = id.base.qp->state;
    if (state == IBV_QPS_INIT) TRY(move_to(id, IBV_QPS_RTR));
    if (state == IBV_QPS_RTS) return {};
    return move_to(id, IBV_QPS_RTS);
}

void stop_qp(CmId& id) {
    if (id.base.qp == nullptr || is_ud(id)) return;
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    ibv_modify_qp(id.base.qp, &attributes, IBV_QP_STATE);
}

}  // namespace feroce::rdmacm

using namespace feroce;
using namespace feroce::rdmacm;

int rdma_init_qp_attr(rdma_cm_id* base, ibv_qp_attr* attributes, int* mask) {
    return abi_call("rdma_init_qp_attr", [&]() -> int {
        CmId& id = id_of(base);
        if (base->verbs == nullptr)
            return fail("rdma_init_qp_attr", {EINVAL, "the id is not bound to a device yet"});
        const ibv_qp_state state = attributes->qp_state;
        if (!is_ud(id) && (state == IBV_QPS_RTR || state == IBV_QPS_RTS)) {
            const Entry entry(id, Call::ConnectQueuePair, "rdma_init_qp_attr");
            if (entry.refused()) return -1;
        }
        switch (state) {
            case IBV_QPS_INIT:
                *mask = fill_init(id, *attributes);
                return 0;
            case IBV_QPS_RTR:
                *mask = fill_rtr(id, *attributes);
                return 0;
            case IBV_QPS_RTS:
                *mask = fill_rts(id, *attributes);
                return 0;
            default:
                return fail("rdma_init_qp_attr", {EINVAL, "only INIT, RTR and RTS"});
        }
    });
}

int rdma_create_qp_ex(rdma_cm_id* base, ibv_qp_init_attr_ex* attributes) {
    return abi_call("rdma_create_qp_ex", [&]() -> int {
        CmId& id = id_of(base);
        if (!is_current(*id.library))
            return fail("rdma_create_qp", {ENODEV, "the id is of the process that forked"});
        if (Result<void> good = check(id, *attributes); !good)
            return fail("rdma_create_qp", good.error());
        Result<void> made = make_qp(id, *attributes);
        if (made) return 0;
        rdma_destroy_qp(base);
        return fail("rdma_create_qp", made.error());
    });
}

int rdma_create_qp(rdma_cm_id* base, ibv_pd* pd, ibv_qp_init_attr* attributes) {
    ibv_qp_init_attr_ex extended{};
    std::memcpy(&extended, attributes, sizeof *attributes);
    extended.comp_mask = IBV_QP_INIT_ATTR_PD;
    extended.pd = pd;
    const int result = rdma_create_qp_ex(base, &extended);
    // Not the queues: programs use one struct for many ids.
    if (result == 0) attributes->cap = extended.cap;
    return result;
}

void rdma_destroy_qp(rdma_cm_id* base) {
    if (base->qp != nullptr) ibv_destroy_qp(base->qp);
    base->qp = nullptr;
    destroy_cqs(id_of(base));
}

int rdma_create_srq_ex(rdma_cm_id* base, ibv_srq_init_attr_ex* attributes) {
    return abi_call("rdma_create_srq_ex", [&]() -> int {
        CmId& id = id_of(base);
        const bool xrc = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 &&
                         attributes->srq_type == IBV_SRQT_XRC;
        ibv_pd* pd = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_PD) != 0 ? attributes->pd : nullptr;
        if (pd == nullptr) pd = base->pd;
        if (!xrc) {
            ibv_srq_init_attr basic{attributes->srq_context, attributes->attr};
            const int result = rdma_create_srq(base, pd, &basic);
            attributes->attr = basic.attr;
            return result;
        }
        if (base->srq != nullptr || base->verbs == nullptr)
            return fail("rdma_create_srq", {EINVAL, "the id has one already, or no device"});
        if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0) {
            const Result<ibv_xrcd*> xrcd = xrc_domain(id);
            if (!xrcd) return fail("rdma_create_srq", xrcd.error());
            attributes->xrcd = *xrcd;
        }
        if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attributes->cq == nullptr) {
            id.owns_cqs = true;
            if (base->recv_cq == nullptr &&
                !make_cq(id, attributes->attr.max_wr, base->recv_cq_channel, base->recv_cq))
                return fail("rdma_create_srq", {errno, "no completion queue"});
            attributes->cq = base->recv_cq;
        }
        attributes->pd = pd;
        attributes->comp_mask |=
            IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        base->srq = ibv_create_srq_ex(base->verbs, attributes);
        if (base->srq == nullptr) return fail("rdma_create_srq", {errno, "the device refuses it"});
        base->pd = pd;
        return 0;
    });
}

int rdma_create_srq(rdma_cm_id* base, ibv_pd* pd, ibv_srq_init_attr* attributes) {
    return abi_call("rdma_create_srq", [&]() -> int {
        if (base->srq != nullptr || base->verbs == nullptr)
            return fail("rdma_create_srq", {EINVAL, "the id has one already, or no device"});
        if (pd == nullptr) pd = base->pd;
        base->srq = ibv_create_srq(pd, attributes);
        if (base->srq == nullptr) return fail("rdma_create_srq", {errno, "the device refuses it"});
        base->pd = pd;
        return 0;
    });
}

void rdma_destroy_srq(rdma_cm_id* base) {
    if (base->srq != nullptr) ibv_destroy_srq(base->srq);
    base->srq = nullptr;
    if (base->qp == nullptr) destroy_cqs(id_of(base));
}
