#include "verbs/events.hpp"

#include <algorithm>

#include "process/undisturbed.hpp"
#include "verbs/common.hpp"

namespace feroce::verbs {
namespace {

void queue_event(ibv_context* context, const ibv_async_event& event) {
    Context& c = context_of(context);
    const std::lock_guard lock(c.mutex);
    c.events.push_back(event);
    c.event_counter.post();  // Under the lock: a count for every event that can be taken.
}

class Listener final : public device::EventListener, public device::CompletionListener {
public:
    void on_qp_event(transport::QueuePair& machine, transport::AsyncEventType type) override {
        auto* qp = static_cast<Qp*>(machine.init().owner);
        ibv_async_event event{};
        event.element.qp = &qp->base.qp_base;
        event.event_type = static_cast<ibv_event_type>(type);
        queue_event(qp->base.qp_base.context, event);
    }

    void on_srq_event(transport::ReceiveQueue& queue, transport::AsyncEventType type) override {
        Srq& srq = static_cast<SharedQueue&>(queue).owner;
        ibv_async_event event{};
        event.element.srq = &srq.base;
        event.event_type = static_cast<ibv_event_type>(type);
        queue_event(srq.base.context, event);
    }

    void on_completion_event(device::CompletionQueue& queue) override {
        auto* cq = static_cast<Cq*>(queue.owner());
        if (cq->base.channel == nullptr) return;
        Channel& channel = object_of<Channel>(cq->base.channel);
        const std::lock_guard lock(channel.mutex);
        channel.events.push_back(cq);
        channel.counter.post();
    }

    void on_overflow(device::CompletionQueue& queue) override {
        auto* cq = static_cast<Cq*>(queue.owner());
        process::log(process::LogLevel::Error, "completion queue of %d entries overflowed",
                     cq->base.cqe);
        ibv_async_event event{};
        event.element.cq = public_cq(*cq);
        event.event_type = IBV_EVENT_CQ_ERR;
        queue_event(cq->base.context, event);
    }
};

Listener& listener() {
    static Listener& leaked = *new Listener;
    return leaked;
}

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
    EventAccount* account = nullptr;
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

void settle(process::Undisturbed& call, ibv_context* context, EventAccount& account) {
    Context& c = context_of(context);
    std::unique_lock lock(c.mutex);
    for (auto it = c.events.begin(); it != c.events.end();) {
        if (owner_of(*it).account != &account) {
            ++it;
            continue;
        }
        it = c.events.erase(it);
        c.event_counter.retract();
    }
    process::wait_until(call, c.acknowledged, lock,
                        [&account] { return account.acknowledged >= account.delivered; });
}

}  // namespace

device::EventListener& event_listener() {
    return listener();
}
device::CompletionListener& completion_listener() {
    return listener();
}

void settle_events(process::Undisturbed& call, Qp& qp) {
    settle(call, qp.base.qp_base.context, qp.async_events);
}
void settle_events(process::Undisturbed& call, Srq& srq) {
    settle(call, srq.base.context, srq.async_events);
}

void settle_events(process::Undisturbed& call, Cq& cq) {
    settle(call, cq.base.context, cq.async_events);
    if (cq.base.channel == nullptr) return;
    Channel& channel = object_of<Channel>(cq.base.channel);
    std::unique_lock lock(channel.mutex);
    const auto mine = [&cq](const Cq* other) { return other == &cq; };
    const auto kept = std::remove_if(channel.events.begin(), channel.events.end(), mine);
    for (auto it = kept; it != channel.events.end(); ++it) channel.counter.retract();
    channel.events.erase(kept, channel.events.end());
    process::wait_until(call, channel.acknowledged, lock, [&cq] {
        return cq.completion_events.acknowledged >= cq.completion_events.delivered;
    });
}

}  // namespace feroce::verbs

using namespace feroce::verbs;

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    if (!alive(context)) {
        errno = refuse("ibv_get_async_event", kDead);
        return -1;
    }
    Context& c = context_of(context);
    const auto take = [&c, event](bool counted) {
        const std::lock_guard lock(c.mutex);
        if (c.events.empty()) return false;
        *event = c.events.front();
        c.events.pop_front();
        c.event_counter.settle(counted, !c.events.empty());
        if (EventAccount* account = owner_of(*event).account) ++account->delivered;
        return true;
    };
    return feroce::process::fetch_event(context->async_fd, take) ? 0 : -1;
}

void ibv_ack_async_event(ibv_async_event* event) {
    const Owner owner = owner_of(*event);
    if (owner.account == nullptr || !alive(owner.context)) return;
    Context& c = context_of(owner.context);
    const std::lock_guard lock(c.mutex);
    ++owner.account->acknowledged;
    c.acknowledged.notify_all();
}
