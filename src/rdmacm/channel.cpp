#include "rdmacm/channel.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "process/waiting.hpp"
#include "rdmacm/digest.hpp"

namespace feroce::rdmacm {

std::mutex& lock() {
    static std::mutex& leaked = *new std::mutex;
    return leaked;
}

std::condition_variable& acknowledgement() {
    static std::condition_variable& leaked = *new std::condition_variable;
    return leaked;
}

Channel* make_channel() {
    if (service() == nullptr) return nullptr;
    auto channel = std::make_unique<Channel>();
    if (Result<void> opened = channel->counter.open(); !opened) {
        errno = refuse("rdma_create_event_channel", opened.error());
        return nullptr;
    }
    channel->base.fd = channel->counter.fd();
    return channel.release();
}

void queue_event(std::unique_ptr<Event> event) {
    const std::lock_guard held(lock());
    Channel& channel = channel_of(event->account->base.channel);
    channel.events.push_back(std::move(event));
    channel.counter.post();
}

void queue_event(CmId& id, rdma_cm_event_type type, int status) {
    auto event = std::make_unique<Event>();
    event->account = &id;
    event->base.id = &id.base;
    event->base.event = type;
    event->base.status = status;
    queue_event(std::move(event));
}

namespace {

// Takes out of a channel what `wanted` says, with the counts.
template <class Wanted>
std::deque<std::unique_ptr<Event>> take_out(Channel& channel, Wanted wanted) {
    std::deque<std::unique_ptr<Event>> out, rest;
    for (std::unique_ptr<Event>& event : channel.events)
        (wanted(*event) ? out : rest).push_back(std::move(event));
    channel.events.swap(rest);
    // A reader that took the count already finds an empty queue and waits again.
    for (std::size_t i = 0; i < out.size(); ++i) channel.counter.retract();
    return out;
}

// Programs with a thread for events, rping for one, destroy the channel at their end while that
// thread is between two calls. In the kernel it mostly waits by then, for ever and harmlessly; so
// that one which comes late does so as well, the channel destroyed last stays open. Deletes the
// one before.
void keep_aside(Channel& destroyed) {
    static Channel* last = nullptr;
    std::unique_ptr<Channel> before;
    const std::lock_guard held(lock());
    before.reset(std::exchange(last, &destroyed));
}

}  // namespace

std::vector<CmId*> settle_events(CmId& id) {
    std::unique_lock held(lock());
    Channel& channel = channel_of(id.base.channel);
    std::vector<CmId*> unfetched;
    for (const auto& event : take_out(channel, [&](Event& e) { return e.account == &id; }))
        if (event->from_peer && event->base.id != &id.base)
            unfetched.push_back(&id_of(event->base.id));
    process::wait_until(acknowledgement(), held, [&] { return id.delivered == id.acknowledged; });
    return unfetched;
}

void move_events(CmId& id, Channel& to) {
    std::unique_lock held(lock());
    Channel& from = channel_of(id.base.channel);
    id.base.channel = &to.base;
    for (auto& event : take_out(from, [&](Event& e) { return e.account == &id; })) {
        to.events.push_back(std::move(event));
        to.counter.post();
    }
    process::wait_until(acknowledgement(), held, [&] { return id.delivered == id.acknowledged; });
}

int complete(CmId& id) {
    if (!id.synchronous) return 0;
    rdma_cm_id& base = id.base;
    if (base.event != nullptr) {
        rdma_ack_cm_event(base.event);
        base.event = nullptr;
    }
    if (rdma_get_cm_event(base.channel, &base.event) != 0) return -1;
    const int status = base.event->status;
    if (status == 0) return 0;
    errno = ECONNREFUSED;
    if (base.event->event != RDMA_CM_EVENT_REJECTED) errno = status < 0 ? -status : status;
    return -1;
}

}  // namespace feroce::rdmacm

using namespace feroce;
using namespace feroce::rdmacm;

rdma_event_channel* rdma_create_event_channel() {
    Channel* channel = make_channel();
    return channel == nullptr ? nullptr : &channel->base;
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
    if (channel != nullptr) keep_aside(channel_of(channel));
}

int rdma_get_cm_event(rdma_event_channel* base, rdma_cm_event** out) {
    if (base == nullptr || out == nullptr)
        return fail("rdma_get_cm_event", {EINVAL, "no channel or no place for the event"});
    Channel& channel = channel_of(base);
    for (;;) {
        if (!process::take_event(base->fd)) return -1;
        std::unique_ptr<Event> event;
        {
            const std::lock_guard held(lock());
            if (channel.events.empty()) continue;  // Its id was destroyed meanwhile.
            event = std::move(channel.events.front());
            channel.events.pop_front();
            ++event->account->delivered;
        }
        if (event->from_peer && !digest(*event)) {
            discard(std::move(event));
            continue;
        }
        *out = &event.release()->base;
        return 0;
    }
}

int rdma_ack_cm_event(rdma_cm_event* base) {
    if (base == nullptr) return fail("rdma_ack_cm_event", {EINVAL, "no event"});
    discard(std::unique_ptr<Event>(reinterpret_cast<Event*>(base)));
    return 0;
}

const char* rdma_event_str(rdma_cm_event_type event) {
    static constexpr std::array kNames{
        "RDMA_CM_EVENT_ADDR_RESOLVED",   "RDMA_CM_EVENT_ADDR_ERROR",
        "RDMA_CM_EVENT_ROUTE_RESOLVED",  "RDMA_CM_EVENT_ROUTE_ERROR",
        "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
        "RDMA_CM_EVENT_CONNECT_ERROR",   "RDMA_CM_EVENT_UNREACHABLE",
        "RDMA_CM_EVENT_REJECTED",        "RDMA_CM_EVENT_ESTABLISHED",
        "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
        "RDMA_CM_EVENT_MULTICAST_JOIN",  "RDMA_CM_EVENT_MULTICAST_ERROR",
        "RDMA_CM_EVENT_ADDR_CHANGE",     "RDMA_CM_EVENT_TIMEWAIT_EXIT"};
    const auto index = static_cast<std::size_t>(event);
    return index < kNames.size() ? kNames[index] : "UNKNOWN EVENT";
}
