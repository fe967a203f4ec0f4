#include "verbs/parts.hpp"

#include <algorithm>

#include "base/probe.hpp"
#include "process/waiting.hpp"
#include "verbs/common.hpp"
#include "verbs/events.hpp"
#include "verbs/instance.hpp"
#include "verbs/lint.hpp"
#include "verbs/ops.hpp"

namespace feroce::verbs {
namespace {

using transport::Completion;

constexpr unsigned kTakenWithoutLookMax = 8;
// Completions for which the queue's lock is held once.
constexpr int kTakenAtOnce = 16;

void fill(const Completion& c, ibv_wc& wc) {
    wc.wr_id = c.wr_id;
    wc.status = static_cast<ibv_wc_status>(c.status);
    wc.opcode = static_cast<ibv_wc_opcode>(c.opcode);
    wc.vendor_err = c.reason;
    wc.byte_len = c.byte_length;
    wc.invalidated_rkey = immediate_or_key(c);
    wc.qp_num = c.qpn.raw;
    wc.src_qp = c.source_qpn.raw;
    wc.wc_flags = wc_flags(c);
    wc.pkey_index = c.pkey_index;
    wc.slid = 0;
    wc.sl = service_level(c);
    wc.dlid_path_bits = 0;
    FEROCE_PROBE5(poll_cq, wc.qp_num, wc.opcode, wc.byte_len, wc.wr_id, wc.status);
}

}  // namespace

unsigned int wc_flags(const Completion& c) {
    unsigned int flags = 0;
    if (c.has_grh) flags |= IBV_WC_GRH;
    if (c.has_immediate) flags |= IBV_WC_WITH_IMM;
    if (c.has_invalidate) flags |= IBV_WC_WITH_INV;
    return flags;
}

std::uint8_t service_level(const Completion& c) {
    // UCX up to 1.17 reads the RoCE packet type here, as mlx5 reports it: 2 is IPv4, 1 IPv6. With 0
    // it would drop every datagram; nobody else in Ethernet looks.
    if (!c.has_grh) return 0;
    return c.over_ipv6 ? 0x9 : 0xa;
}

std::uint32_t immediate_or_key(const Completion& c) {
    return c.has_immediate ? htobe32(c.immediate) : c.immediate;
}

bool look_for_completions(Cq& cq) {
    process::Process& process = process_of(cq.base.context);
    // What is there already is taken without a look at the network: always while arrivals would
    // wake our thread (see process/shard), else a few times in a row. A look is a system call.
    if (!cq.queue->empty()) {
        const unsigned taken = cq.taken_without_look.load(std::memory_order_relaxed);
        cq.taken_without_look.store(taken + 1, std::memory_order_relaxed);
        if (process.armed(*cq.queue) || taken % kTakenWithoutLookMax != 0) {
            process.note_poll(*cq.queue);
            return true;
        }
    }
    process.drive(*cq.queue);
    if (!cq.queue->empty()) return true;
    process::after_empty_poll();
    return false;
}

int poll_cq(ibv_cq* base, int wanted, ibv_wc* out) {
    if (!alive(base->context)) return -refuse("ibv_poll_cq", kDead);
    Cq& cq = cq_of(base);
    if (!look_for_completions(cq)) return 0;
    int total = 0;
    std::uint32_t reason = 0;  // Of the last that failed, and was not flushed in order.
    Qpn failed;
    const auto take = [&](const Completion& c) {
        fill(c, out[total++]);
        if (c.reason == 0 || (c.reason & transport::ReasonLog::kOrderly) != 0) return;
        reason = c.reason;
        failed = c.qpn;
    };
    while (total < wanted) {
        const auto room = static_cast<std::uint32_t>(std::min(wanted - total, kTakenAtOnce));
        if (cq.queue->poll(room, take) < room) break;
    }
    if (reason != 0) process_of(base->context).note_failure(failed, reason);
    return total;
}

int req_notify_cq(ibv_cq* base, int solicited_only) {
    if (!alive(base->context)) return refuse("ibv_req_notify_cq", kDead);
    using Arm = device::CompletionQueue::Arm;
    cq_of(base).queue->arm(solicited_only != 0 ? Arm::Solicited : Arm::Next);
    process_of(base->context).expect_sleep(*cq_of(base).queue);
    return 0;
}

int modify_cq(ibv_cq*, ibv_modify_cq_attr* attributes) {
    if (attributes->attr_mask != IBV_CQ_ATTR_MODERATE)
        return refuse("ibv_modify_cq", {EINVAL, "unknown attributes"});
    const bool none = attributes->moderate.cq_count <= 1 && attributes->moderate.cq_period == 0;
    return none ? 0 : refuse("ibv_modify_cq", {EOPNOTSUPP, "events are not moderated"});
}

// Nothing is locked less for it: the promise is for lint to look at.
static bool promises_one_thread(const ibv_cq_init_attr_ex& a) {
    const bool flagged = (a.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 &&
                         (a.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
    const bool owned = (a.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 &&
                       a.parent_domain != nullptr && pd_of(a.parent_domain).one_thread;
    return flagged || owned;
}

ibv_cq_ex* make_cq(ibv_context* context, const ibv_cq_init_attr_ex& attributes) {
    if (!alive(context)) return refuse_null("ibv_create_cq", kDead);
    if (attributes.cqe == 0 || attributes.cqe > limits::kCompletions)
        return refuse_null("ibv_create_cq", {EINVAL, "cqe is 0 or beyond max_cqe"});
    if (attributes.comp_vector >= static_cast<std::uint32_t>(context->num_comp_vectors))
        return refuse_null("ibv_create_cq", {EINVAL, "comp_vector is beyond num_comp_vectors"});
    if (attributes.channel != nullptr && !alive(attributes.channel->context))
        return refuse_null("ibv_create_cq", {EINVAL, "the channel was destroyed"});
    auto cq = std::make_unique<Cq>();
    cq->queue = std::make_unique<device::CompletionQueue>(
        attributes.cqe, &instance_of(context).completion_listener(), cq.get());
    if (!process_of(context).quotas().completion_queues.take())
        return refuse_null("ibv_create_cq", {ENOMEM, "as many completion queues as max_cq"});
    ibv_cq_ex& out = cq->base;
    out.context = context;
    out.channel = attributes.channel;
    out.cq_context = attributes.cq_context;
    out.cqe = static_cast<int>(attributes.cqe);
    cq->one_thread = promises_one_thread(attributes);
    ::pthread_mutex_init(&out.mutex, nullptr);
    ::pthread_cond_init(&out.cond, nullptr);
    fill_extended_operations(*cq, attributes.wc_flags);
    if (attributes.channel != nullptr) {
        Channel& channel = object_of<Channel>(attributes.channel);
        const std::lock_guard lock(channel.mutex);
        ++channel.base.refcnt;
    }
    context_of(context).objects.fetch_add(1);
    context_of(context).cqs.fetch_add(1);
    if (Lint* lint = lint_of(context))
        lint->tell([&](lint::Linter& linter, lint::Place place) {
            linter.asks_cq(attributes.cqe, place);
            linter.cq_made(public_cq(*cq), attributes.channel, attributes.cqe, cq->one_thread);
        });
    return &cq.release()->base;
}

namespace {

int destroy_cq(ibv_cq* base) {
    // Before signals are held back.
    if (Lint* lint = lint_of(base->context); lint != nullptr && cq_of(base).users.load() == 0)
        lint->await_acknowledgements(base);
    process::Undisturbed call;
    if (!alive(base->context)) return refuse("ibv_destroy_cq", kDead);
    Cq& cq = cq_of(base);
    if (cq.users.load() > 0) return refuse("ibv_destroy_cq", {EBUSY, "queue pairs still use it"});
    Lint* const lint = lint_of(base->context);
    if (lint != nullptr)
        lint->tell_quickly([base](lint::Linter& linter) { linter.cq_destroys(base); });
    // A thread of ours may just be in it, reporting an event.
    process_of(base->context).forget(*cq.queue);
    settle_events(call, cq);
    if (base->channel != nullptr) {
        Channel& channel = object_of<Channel>(base->channel);
        const std::lock_guard lock(channel.mutex);
        --channel.base.refcnt;
    }
    context_of(base->context).objects.fetch_sub(1);
    context_of(base->context).cqs.fetch_sub(1);
    process_of(base->context).quotas().completion_queues.give();
    cq.queue->close();
    if (lint != nullptr)
        lint->tell_quickly([base](lint::Linter& linter) { linter.cq_destroyed(base); });
    bury(cq, base->context);
    return 0;
}

}  // namespace
}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                      int comp_vector) {
    return abi_call("ibv_create_cq", [&]() -> ibv_cq* {
        ibv_cq_init_attr_ex attributes{};
        attributes.cqe = cqe > 0 ? static_cast<std::uint32_t>(cqe) : 0;
        attributes.cq_context = cq_context;
        attributes.channel = channel;
        attributes.comp_vector = static_cast<std::uint32_t>(comp_vector);
        ibv_cq_ex* cq = make_cq(context, attributes);
        return cq == nullptr ? nullptr : ibv_cq_ex_to_cq(cq);
    });
}

int ibv_resize_cq(ibv_cq* base, int cqe) {
    return abi_call("ibv_resize_cq", [&]() -> int {
        if (!alive(base->context)) return refuse("ibv_resize_cq", kDead);
        if (cqe <= 0 || cqe > limits::kCompletions)
            return refuse("ibv_resize_cq", {EINVAL, "cqe is 0 or beyond max_cqe"});
        if (!cq_of(base).queue->resize(static_cast<std::uint32_t>(cqe)))
            return refuse("ibv_resize_cq", {EINVAL, "the queue holds more completions than that"});
        base->cqe = cqe;
        if (Lint* lint = lint_of(base->context))
            lint->tell_quickly([&](lint::Linter& linter) {
                linter.cq_resized(base, static_cast<std::uint32_t>(cqe));
            });
        return 0;
    });
}

int ibv_destroy_cq(ibv_cq* base) {
    return destroy_cq(base);
}
