#include "verbs/events.hpp"

#include "verbs/common.hpp"

namespace feroce::verbs {
namespace {

enum class Subject { None, Cq, Qp, Srq };

Subject subject_of(ibv_event_type type) {
    switch (type) {
        case IBV_EVENT_CQ_ERR:
            return Subject::Cq;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            return Subject::Qp;
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            return Subject::Srq;
        default:
            return Subject::None;
    }
}

struct Owner {
    ibv_context* context = nullptr;
    AsyncEvents::Account* account = nullptr;
};

Owner owner_of(const ibv_async_event& event) {
    switch (subject_of(event.event_type)) {
        case Subject::Cq:
            return {event.element.cq->context, &cq_of(event.element.cq).async_events};
        case Subject::Qp:
            return {event.element.qp->context, &qp_of(event.element.qp).async_events};
        case Subject::Srq:
            return {event.element.srq->context, &srq_of(event.element.srq).async_events};
        case Subject::None:
            break;
    }
    return {};
}

}  // namespace

void Listener::on_qp_event(transport::QueuePair& machine, transport::AsyncEventType type) {
    auto* qp = static_cast<Qp*>(machine.init().owner);
    ibv_async_event event{};
    event.element.qp = &qp->base.qp_base;
    event.event_type = static_cast<ibv_event_type>(type);
    context_of(qp->base.qp_base.context).events.post(event, &qp->async_events);
}

void Listener::on_srq_event(transport::ReceiveQueue& queue, transport::AsyncEventType type) {
    Srq& srq = static_cast<SharedQueue&>(queue).owner;
    ibv_async_event event{};
    event.element.srq = &srq.base;
    event.event_type = static_cast<ibv_event_type>(type);
    context_of(srq.base.context).events.post(event, &srq.async_events);
}

void Listener::on_completion_event(device::CompletionQueue& queue) {
    auto* cq = static_cast<Cq*>(queue.owner());
    if (cq->base.channel == nullptr) return;
    object_of<Channel>(cq->base.channel).events.post(cq, &cq->completion_events);
}

void Listener::on_overflow(device::CompletionQueue& queue) {
    auto* cq = static_cast<Cq*>(queue.owner());
    process::log(process::LogLevel::Error, "completion queue of %d entries overflowed",
                 cq->base.cqe);
    ibv_async_event event{};
    event.element.cq = public_cq(*cq);
    event.event_type = IBV_EVENT_CQ_ERR;
    context_of(cq->base.context).events.post(event, &cq->async_events);
}

void settle_events(process::Undisturbed& call, Qp& qp) {
    context_of(qp.base.qp_base.context).events.settle(call, qp.async_events);
}

void settle_events(process::Undisturbed& call, Srq& srq) {
    context_of(srq.base.context).events.settle(call, srq.async_events);
}

void settle_events(process::Undisturbed& call, Cq& cq) {
    context_of(cq.base.context).events.settle(call, cq.async_events);
    if (cq.base.channel != nullptr)
        object_of<Channel>(cq.base.channel).events.settle(call, cq.completion_events);
}

}  // namespace feroce::verbs

using namespace feroce::verbs;

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    if (!alive(context)) return refuse_minus("ibv_get_async_event", kDead);
    if (!context_of(context).events.take(context->async_fd, *event)) return -1;
    feroce::annotate::defined(event);
    return 0;
}

void ibv_ack_async_event(ibv_async_event* event) {
    const Owner owner = owner_of(*event);
    if (owner.account == nullptr || !alive(owner.context)) return;
    context_of(owner.context).events.acknowledge(*owner.account, 1);
}
