// Queue pairs: create, modify, query, destroy, multicast.
#include <algorithm>
#include <cstring>
#include <optional>

#include "base/assert.hpp"
#include "verbs/common.hpp"
#include "verbs/events.hpp"
#include "verbs/instance.hpp"
#include "verbs/lint.hpp"
#include "verbs/ops.hpp"
#include "verbs/parts.hpp"

namespace feroce::verbs {
namespace {

bool has(const ibv_qp_init_attr_ex& a, std::uint32_t bit) {
    return (a.comp_mask & bit) != 0;
}

bool is_xrc(ibv_qp_type type) {
    return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

// What is on its way into far memory cannot be called back, and the program may use its buffers
// after this. The lock is let go of meanwhile.
void end_copies(Qp& qp, std::optional<process::Shard::Session>& session) {
    while (qp.machine->delivers()) {
        session.reset();
        qp.shard->end_copies(*qp.machine);
        session.emplace(*qp.shard);
    }
}

Result<void> check_type(const ibv_qp_init_attr_ex& a) {
    const bool known = a.qp_type == IBV_QPT_RC || a.qp_type == IBV_QPT_UC ||
                       a.qp_type == IBV_QPT_UD || is_xrc(a.qp_type);
    if (!known) return Error{EOPNOTSUPP, "queue pairs are RC, UC, UD or XRC"};
    if (a.qp_type == IBV_QPT_XRC_RECV) {
        if (!has(a, IBV_QP_INIT_ATTR_XRCD) || a.xrcd == nullptr || !alive(a.xrcd->context))
            return Error{EINVAL, "an XRC target needs an XRC domain"};
        return {};
    }
    if (!has(a, IBV_QP_INIT_ATTR_PD) || a.pd == nullptr)
        return Error{EINVAL, "a queue pair needs a protection domain"};
    if (a.send_cq == nullptr) return Error{EINVAL, "a queue pair needs a send completion queue"};
    if (a.recv_cq == nullptr && a.qp_type != IBV_QPT_XRC_SEND)
        return Error{EINVAL, "a queue pair needs a receive completion queue"};
    const bool live = alive(a.pd->context) && alive(a.send_cq->context) &&
                      (is_xrc(a.qp_type) || alive(a.recv_cq->context)) &&
                      (is_xrc(a.qp_type) || a.srq == nullptr || alive(a.srq->context));
    if (!live) return Error{EINVAL, "the domain or a queue of the queue pair was destroyed"};
    return {};
}

Result<void> check(const ibv_qp_init_attr_ex& a) {
    constexpr std::uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
                                     IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if ((a.comp_mask & ~kKnown) != 0)
        return Error{EOPNOTSUPP, "a queue pair attribute that we do not have"};
    if (has(a, IBV_QP_INIT_ATTR_CREATE_FLAGS) && a.create_flags != 0)
        return Error{EOPNOTSUPP, "queue pair create flags are not supported"};
    TRY(check_type(a));
    if (a.cap.max_send_wr > limits::kWorkRequests || a.cap.max_recv_wr > limits::kWorkRequests)
        return Error{EINVAL, "more work requests than max_qp_wr"};
    if (a.cap.max_send_sge > limits::kSges || a.cap.max_recv_sge > limits::kSges)
        return Error{EINVAL, "more SGEs than max_sge"};
    if (a.cap.max_inline_data > limits::kInlineBytes)
        return Error{EINVAL, "max_inline_data is beyond 1024 bytes"};
    return {};
}

// What the queue really has is written back to the caller's struct.
void settle_capabilities(ibv_qp_init_attr_ex& a) {
    a.cap.max_send_wr = std::max(a.cap.max_send_wr, 1u);
    a.cap.max_send_sge = std::max(a.cap.max_send_sge, 1u);
    if (a.srq != nullptr || is_xrc(a.qp_type)) {
        a.cap.max_recv_wr = 0;
        a.cap.max_recv_sge = 0;
    } else {
        a.cap.max_recv_wr = std::max(a.cap.max_recv_wr, 1u);
        a.cap.max_recv_sge = std::max(a.cap.max_recv_sge, 1u);
    }
}

transport::QpInit engine_init(const ibv_qp_init_attr_ex& a, Qp& qp) {
    transport::QpInit init;
    init.type = static_cast<transport::QpType>(a.qp_type);
    if (a.pd != nullptr && has(a, IBV_QP_INIT_ATTR_PD)) init.pd = pd_of(a.pd).id;
    if (a.qp_type != IBV_QPT_XRC_RECV) init.send_cq = cq_of(a.send_cq).queue.get();
    if (!is_xrc(a.qp_type)) init.receive_cq = cq_of(a.recv_cq).queue.get();
    if (a.srq != nullptr && !is_xrc(a.qp_type)) init.srq = srq_of(a.srq).queue.get();
    init.capabilities = {a.cap.max_send_wr, a.cap.max_recv_wr, a.cap.max_send_sge,
                         a.cap.max_recv_sge, a.cap.max_inline_data};
    init.signal_all = a.sq_sig_all != 0;
    if (has(a, IBV_QP_INIT_ATTR_XRCD) && a.xrcd != nullptr)
        init.xrc_domain = object_of<Xrcd>(a.xrcd).domain;
    if (a.qp_type == IBV_QPT_UD) init.datagram_mtu = context_of(qp.base.qp_base.context).mtu;
    init.owner = &qp;
    return init;
}

// The shards that its completion queues have already: of one of them, if there is a choice.
std::uint32_t shards_near(const ibv_qp_init_attr_ex& a) {
    const std::uint32_t sends =
        a.qp_type == IBV_QPT_XRC_RECV ? 0 : cq_of(a.send_cq).queue->shards();
    return sends != 0 || is_xrc(a.qp_type) ? sends : cq_of(a.recv_cq).queue->shards();
}

// A poller of its completion queues drives its shard.
void note_shard(const ibv_qp_init_attr_ex& a, std::uint32_t shard) {
    ASSERT(shard < 32);
    const std::uint32_t bit = std::uint32_t{1} << shard;
    if (a.qp_type != IBV_QPT_XRC_RECV) cq_of(a.send_cq).queue->add_shards(bit);
    if (!is_xrc(a.qp_type)) cq_of(a.recv_cq).queue->add_shards(bit);
}

void fill_public(const ibv_qp_init_attr_ex& a, Qp& qp) {
    ibv_qp& out = qp.base.qp_base;
    out.qp_context = a.qp_context;
    out.pd = has(a, IBV_QP_INIT_ATTR_PD) ? a.pd : nullptr;
    out.send_cq = a.qp_type == IBV_QPT_XRC_RECV ? nullptr : a.send_cq;
    out.recv_cq = is_xrc(a.qp_type) ? nullptr : a.recv_cq;
    out.srq = is_xrc(a.qp_type) ? nullptr : a.srq;
    out.qp_num = qp.machine->qpn().raw;
    out.handle = out.qp_num;
    out.state = IBV_QPS_RESET;
    out.qp_type = a.qp_type;
    ::pthread_mutex_init(&out.mutex, nullptr);
    ::pthread_cond_init(&out.cond, nullptr);
}

// Counts a queue pair in (+1) or out (-1) of what it uses.
void count_users(const ibv_qp& qp, std::uint32_t step) {
    if (qp.send_cq != nullptr) cq_of(qp.send_cq).users.fetch_add(step);
    if (qp.recv_cq != nullptr) cq_of(qp.recv_cq).users.fetch_add(step);
    if (qp.srq != nullptr) srq_of(qp.srq).users.fetch_add(step);
    context_of(qp.context).objects.fetch_add(step);
}

void purge_completions(const ibv_qp& qp) {
    const Qpn qpn{qp.qp_num};
    if (qp.send_cq != nullptr) cq_of(qp.send_cq).queue->purge(qpn);
    if (qp.recv_cq != nullptr) cq_of(qp.recv_cq).queue->purge(qpn);
}

ibv_qp* make_qp(ibv_context* context, ibv_qp_init_attr_ex& a) {
    if (!alive(context)) return refuse_null("ibv_create_qp", kDead);
    if (Result<void> good = check(a); !good) return refuse_null("ibv_create_qp", good.error());
    if (Lint* lint = lint_of(context)) lint->asks_qp(a);
    settle_capabilities(a);
    process::Quota& quota = process_of(context).quotas().queue_pairs;
    if (!quota.take())
        return refuse_null("ibv_create_qp", {ENOMEM, "as many queue pairs as max_qp"});
    Rollback give_back([&quota] { quota.give(); });
    auto qp = std::make_unique<Qp>();
    const std::uint32_t shard = process_of(context).pick_shard(shards_near(a));
    qp->shard = &process_of(context).shard(shard);
    note_shard(a, shard);
    // Before the engine knows it: from then on the state page reads it, under the shard's lock.
    qp->base.qp_base.context = context;
    {
        process::Shard::Session session(*qp->shard);
        const Result<transport::QueuePair*> machine =
            session.engine().create_qp(engine_init(a, *qp));
        if (!machine) return refuse_null("ibv_create_qp", machine.error());
        qp->machine = *machine;
    }
    give_back.keep();
    qp->capabilities = a.cap;
    qp->signal_all = a.sq_sig_all != 0;
    if (has(a, IBV_QP_INIT_ATTR_XRCD) && a.xrcd != nullptr) qp->xrcd = &object_of<Xrcd>(a.xrcd);
    fill_public(a, *qp);
    if (qp->base.qp_base.pd != nullptr) pd_of(qp->base.qp_base.pd).users.fetch_add(1);
    count_users(qp->base.qp_base, 1);
    if (Lint* lint = lint_of(context)) lint->qp_made(*qp);
    return &qp.release()->base.qp_base;
}

// To RESET or ERR, nothing is on its way into far memory afterwards. Before a RESET, because the
// wait goes through ERR; so a request that is refused is found out first.
Result<void> change(Qp& qp, std::optional<process::Shard::Session>& session,
                    const transport::QpAttributes& wanted, transport::AttributeMask mask) {
    const bool moves = mask.has(transport::Attribute::State);
    if (moves && wanted.state == transport::QpState::Reset) {
        TRY(session->engine().check_modify(*qp.machine, wanted, mask));
        end_copies(qp, session);
    }
    TRY(session->engine().modify_qp(session->now(), *qp.machine, wanted, mask));
    if (moves && wanted.state == transport::QpState::Err) end_copies(qp, session);
    return {};
}

// `from` is the state before; `why` says what is wrong if it is refused.
int modify(Qp& qp, const ibv_qp_attr& attributes, int mask, transport::QpState& from, Error& why) {
    ibv_qp& base = qp.base.qp_base;
    const Result<transport::QpAttributes> wanted =
        qp_attributes(context_of(base.context), attributes, mask);
    std::optional<process::Shard::Session> session(std::in_place, *qp.shard);
    from = qp.machine->state();
    if (!wanted) return refuse("ibv_modify_qp", why = wanted.error(), *qp.machine);
    const Result<void> modified = change(qp, session, *wanted, {static_cast<std::uint32_t>(mask)});
    if (!modified) return refuse("ibv_modify_qp", why = modified.error(), *qp.machine);
    base.state = static_cast<ibv_qp_state>(qp.machine->state());
    if ((mask & IBV_QP_STATE) == 0) return 0;
    if (base.state == IBV_QPS_RTR || base.state == IBV_QPS_RESET)
        process_of(base.context)
            .note_connection(qp.machine->qpn(), qp.machine->attributes().destination_qpn);
    if (base.state == IBV_QPS_RESET) purge_completions(base);
    return 0;
}

using Membership = Result<void> (device::Engine::*)(transport::QueuePair&, const Gid&);

int change_membership(const char* call, ibv_qp* base, const ibv_gid& gid, Membership change) {
    return abi_call(call, [&]() -> int {
        if (!alive(base->context)) return refuse(call, kDead);
        Gid group;
        std::memcpy(group.raw.data(), gid.raw, group.raw.size());
        Qp& qp = qp_of(base);
        process::Shard::Session session(*qp.shard);
        const Result<void> changed = (session.engine().*change)(*qp.machine, group);
        return changed ? 0 : refuse(call, changed.error(), *qp.machine);
    });
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
    return abi_call("ibv_create_qp_ex", [&]() -> ibv_qp* {
        const bool extended = has(*attributes, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
        if (extended && !builder_supports(attributes->qp_type, attributes->send_ops_flags))
            return refuse_null("ibv_create_qp_ex", {EOPNOTSUPP, "a send operation we do not have"});
        ibv_qp* base = make_qp(context, *attributes);
        if (base != nullptr && extended) fill_builder_operations(qp_of(base));
        return base;
    });
}

ibv_qp* open_qp(ibv_context*, ibv_qp_open_attr*) {
    return abi_call("ibv_open_qp", [&]() -> ibv_qp* {
        return refuse_null("ibv_open_qp", {EOPNOTSUPP, "XRC targets are not shared by processes"});
    });
}

}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
    return abi_call("ibv_create_qp", [&]() -> ibv_qp* {
        ibv_qp_init_attr_ex extended{};
        std::memcpy(&extended, attributes, sizeof *attributes);
        extended.comp_mask = IBV_QP_INIT_ATTR_PD;
        extended.pd = pd;
        ibv_qp* qp = make_qp(pd->context, extended);
        if (qp != nullptr) attributes->cap = extended.cap;
        annotate::defined(&attributes->cap);
        return qp;
    });
}

int ibv_modify_qp(ibv_qp* base, ibv_qp_attr* attributes, int mask) {
    return abi_call("ibv_modify_qp", [&]() -> int {
        if (!alive(base->context)) return refuse("ibv_modify_qp", kDead);
        Qp& qp = qp_of(base);
        transport::QpState from{};
        Error why;
        const int code = modify(qp, *attributes, mask, from, why);
        if (Lint* lint = lint_of(base->context)) lint->modified(qp, *attributes, mask, from, why);
        return code;
    });
}

int ibv_query_qp(ibv_qp* base, ibv_qp_attr* attributes, int, ibv_qp_init_attr* init) {
    return abi_call("ibv_query_qp", [&]() -> int {
        if (!alive(base->context)) return refuse("ibv_query_qp", kDead);
        Qp& qp = qp_of(base);
        {
            process::Shard::Session session(*qp.shard);
            *attributes = qp_attr(*qp.machine, qp.capabilities);
        }
        base->state = attributes->qp_state;
        annotate::defined(attributes);
        annotate::defined(init);
        if (init == nullptr) return 0;
        init->qp_context = base->qp_context;
        init->send_cq = base->send_cq;
        init->recv_cq = base->recv_cq;
        init->srq = base->srq;
        init->cap = qp.capabilities;
        init->qp_type = base->qp_type;
        init->sq_sig_all = qp.signal_all ? 1 : 0;
        return 0;
    });
}

int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) {
    // Deliveries ascend and the aligned piece with the last byte is stored last, but a message
    // that is sent again is written again.
    return 0;
}

int ibv_destroy_qp(ibv_qp* base) {
    process::Undisturbed call;
    if (!alive(base->context)) return refuse("ibv_destroy_qp", kDead);
    Qp& qp = qp_of(base);
    // Null: a call before was left, by siglongjmp(), while it waited.
    if (qp.machine != nullptr) {
        if (Lint* lint = lint_of(base->context)) {
            lint->look_at_notices();
            // Before anything goes: a thread that polls may look for the cause of a failure.
            lint->qp_destroyed(base->qp_num);
        }
        std::optional<process::Shard::Session> session(std::in_place, *qp.shard);
        end_copies(qp, session);
        process_of(base->context).note_connection(qp.machine->qpn(), Qpn{0});
        session->engine().destroy_qp(*qp.machine);
        qp.machine = nullptr;
    }
    purge_completions(*base);
    settle_events(call, qp);
    count_users(*base, ~std::uint32_t{0});
    if (base->pd != nullptr) leave_pd(base->pd);
    process_of(base->context).quotas().queue_pairs.give();
    bury(qp, base->context);
    return 0;
}

int ibv_attach_mcast(ibv_qp* base, const ibv_gid* gid, std::uint16_t) {
    return change_membership("ibv_attach_mcast", base, *gid, &device::Engine::attach_multicast);
}

int ibv_detach_mcast(ibv_qp* base, const ibv_gid* gid, std::uint16_t) {
    return change_membership("ibv_detach_mcast", base, *gid, &device::Engine::detach_multicast);
}

int ibv_set_ece(ibv_qp*, ibv_ece* ece) {
    // No options of ours to negotiate: only "none" can be set.
    if (ece->vendor_id == 0 && ece->options == 0 && ece->comp_mask == 0) return 0;
    return refuse("ibv_set_ece", {EOPNOTSUPP, "there are no enhanced connection options"});
}

int ibv_query_ece(ibv_qp*, ibv_ece* ece) {
    *ece = {};
    return 0;
}
