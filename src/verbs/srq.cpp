// Shared receive queues.
#include <algorithm>
#include <utility>

#include "verbs/common.hpp"
#include "verbs/events.hpp"
#include "verbs/instance.hpp"
#include "verbs/lint.hpp"
#include "verbs/ops.hpp"

namespace feroce::verbs {
namespace {

Srq* make_srq(ibv_pd* pd, void* srq_context, ibv_srq_attr& attributes) {
    if (!alive(pd->context)) return refuse_null("ibv_create_srq", kDead);
    if (attributes.max_wr > limits::kWorkRequests || attributes.max_sge > limits::kSges)
        return refuse_null("ibv_create_srq", {EINVAL, "beyond max_srq_wr or max_srq_sge"});
    if (Lint* lint = lint_of(pd->context))
        lint->tell([&](lint::Linter& linter, lint::Place place) {
            linter.asks_srq(attributes.max_wr, attributes.max_sge, place);
        });
    auto srq = std::make_unique<Srq>();
    attributes.max_wr = std::max(attributes.max_wr, 1u);
    attributes.max_sge = std::max(attributes.max_sge, 1u);
    srq->queue =
        std::make_unique<SharedQueue>(*srq, pd_of(pd).id, attributes.max_wr, attributes.max_sge);
    if (!process_of(pd->context).quotas().shared_receive_queues.take())
        return refuse_null("ibv_create_srq", {ENOMEM, "as many shared receive queues as max_srq"});
    srq->base.context = pd->context;
    srq->base.srq_context = srq_context;
    srq->base.pd = pd;
    ::pthread_mutex_init(&srq->base.mutex, nullptr);
    ::pthread_cond_init(&srq->base.cond, nullptr);
    pd_of(pd).users.fetch_add(1);
    context_of(pd->context).objects.fetch_add(1);
    context_of(pd->context).srqs.fetch_add(1);
    return srq.release();
}

}  // namespace

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes) {
    return abi_call("ibv_create_srq_ex", [&]() -> ibv_srq* {
        constexpr std::uint32_t kXrcNeeds =
            IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        const bool typed = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
        if (!typed || attributes->srq_type != IBV_SRQT_XRC)
            return refuse_null("ibv_create_srq_ex", {EOPNOTSUPP, "only basic and XRC queues"});
        if ((attributes->comp_mask & kXrcNeeds) != kXrcNeeds)
            return refuse_null("ibv_create_srq_ex",
                               {EINVAL, "an XRC queue needs a PD, XRCD and CQ"});
        if (!alive(attributes->cq->context) || !alive(attributes->xrcd->context))
            return refuse_null("ibv_create_srq_ex", kDead);
        Srq* srq = make_srq(attributes->pd, attributes->srq_context, attributes->attr);
        if (srq == nullptr) return nullptr;
        srq->cq = &cq_of(attributes->cq);
        srq->cq->queue->add_shards(device::CompletionQueue::kAllShards);  // XRC targets are on any.
        srq->xrcd = &object_of<Xrcd>(attributes->xrcd);
        Rollback unmake([&] {
            leave_pd(attributes->pd);
            context_of(context).objects.fetch_sub(1);
            context_of(context).srqs.fetch_sub(1);
            process_of(context).quotas().shared_receive_queues.give();
            delete srq;
        });
        const Result<SrqNumber> number =
            process_of(context).xrc().register_srq(*srq->queue, srq->xrcd->domain, *srq->cq->queue);
        if (!number) return refuse_null("ibv_create_srq_ex", number.error());
        unmake.keep();
        srq->number = *number;
        srq->cq->users.fetch_add(1);
        return &srq->base;
    });
}

int get_srq_num(ibv_srq* base, std::uint32_t* number) {
    return abi_call("ibv_get_srq_num", [&]() -> int {
        const Srq& srq = srq_of(base);
        if (srq.xrcd == nullptr) return refuse("ibv_get_srq_num", {EINVAL, "not an XRC queue"});
        *number = srq.number.raw;
        return 0;
    });
}

}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
    return abi_call("ibv_create_srq", [&]() -> ibv_srq* {
        Srq* srq = make_srq(pd, attributes->srq_context, attributes->attr);
        return srq == nullptr ? nullptr : &srq->base;
    });
}

int ibv_modify_srq(ibv_srq* base, ibv_srq_attr* attributes, int mask) {
    return abi_call("ibv_modify_srq", [&]() -> int {
        if (!alive(base->context)) return refuse("ibv_modify_srq", kDead);
        Srq& srq = srq_of(base);
        if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0)
            return refuse("ibv_modify_srq", {EINVAL, "unknown attributes"});
        if ((mask & IBV_SRQ_MAX_WR) != 0 && attributes->max_wr != srq.queue->wr_max())
            return refuse("ibv_modify_srq", {EOPNOTSUPP, "a receive queue cannot be resized"});
        if ((mask & IBV_SRQ_LIMIT) != 0) {
            if (attributes->srq_limit > srq.queue->wr_max())
                return refuse("ibv_modify_srq", {EINVAL, "the limit is beyond the queue's size"});
            if (srq.queue->arm_limit(attributes->srq_limit))
                instance_of(base->context)
                    .event_listener()
                    .on_srq_event(*srq.queue, transport::AsyncEventType::SrqLimitReached);
        }
        return 0;
    });
}

int ibv_query_srq(ibv_srq* base, ibv_srq_attr* attributes) {
    return abi_call("ibv_query_srq", [&]() -> int {
        if (!alive(base->context)) return refuse("ibv_query_srq", kDead);
        Srq& srq = srq_of(base);
        attributes->max_wr = srq.queue->wr_max();
        attributes->max_sge = srq.queue->sge_max();
        attributes->srq_limit = srq.queue->limit();
        annotate::defined(attributes);
        return 0;
    });
}

int ibv_destroy_srq(ibv_srq* base) {
    process::Undisturbed call;
    if (!alive(base->context)) return refuse("ibv_destroy_srq", kDead);
    Srq& srq = srq_of(base);
    if (srq.users.load() > 0) return refuse("ibv_destroy_srq", {EBUSY, "queue pairs still use it"});
    process::Process& process = process_of(base->context);
    const bool was_xrc = std::exchange(srq.xrcd, nullptr) != nullptr;
    if (was_xrc) process.xrc().unregister_srq(srq.number);
    process.quiesce();
    if (was_xrc) process.end_deliveries();  // Others have no queue pairs any more.
    settle_events(call, srq);
    if (Lint* lint = lint_of(base->context))
        lint->tell_quickly([base](lint::Linter& linter) { linter.srq_destroyed(base); });
    if (srq.cq != nullptr) srq.cq->users.fetch_sub(1);
    leave_pd(base->pd);
    context_of(base->context).objects.fetch_sub(1);
    context_of(base->context).srqs.fetch_sub(1);
    process.quotas().shared_receive_queues.give();
    bury(srq, base->context);
    return 0;
}
