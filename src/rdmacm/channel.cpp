#include "rdmacm/events.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/probe.hpp"
#include "process/undisturbed.hpp"

namespace feroce::rdmacm {

Channel* make_channel() {
    Library* home = library();
    if (home == nullptr) return nullptr;
    auto channel = std::make_unique<Channel>();
    channel->library = home;
    if (Result<void> opened = channel->counter.open(); !opened) {
        errno = refuse("rdma_create_event_channel", opened.error());
        return nullptr;
    }
    channel->base.fd = channel->counter.fd();
    return channel.release();
}

namespace {

Events make_blank() {
    Events one;
    one.emplace_back(std::make_unique<Event>());
    return one;
}

}  // namespace

Events make_event(CmId& id, std::uint32_t type) {
    Events one = make_blank();
    Event& event = *one.front();
    event.account = &id;
    event.base.id = &id.base;
    std::memcpy(&event.base.event, &type, sizeof type);
    return one;
}

void reserve_events(CmId& id, std::size_t count) {
    while (id.spare.size() < count) id.spare.splice(id.spare.end(), make_blank());
}

void queue_event(Events event) {
    CmId& account = *event.front()->account;
    const std::lock_guard held(account.library->mutex);
    Channel& channel = channel_of(account.base.channel);
    channel.events.splice(channel.events.end(), event);
    ++account.queued;
    channel.counter.post();
}

namespace {

// Takes the events of an id out of its channel.
Events take_out(Channel& channel, CmId& id) {
    Events out;
    for (auto it = channel.events.begin(); id.queued > 0 && it != channel.events.end();) {
        const auto event = it++;
        if ((*event)->account != &id) continue;
        out.splice(out.end(), channel.events, event);
        --id.queued;
    }
    // A reader that took the count already finds an empty queue and waits again.
    if (!out.empty()) channel.counter.dropped(!channel.events.empty());
    return out;
}

// Programs with a thread for events, rping for one, destroy the channel at their end while that
// thread is between two calls. In the kernel it mostly waits by then, for ever and harmlessly; so
// that one which comes late does so as well, the channel destroyed last stays open. Deletes the
// one before.
void keep_aside(Channel& destroyed) {
    std::unique_ptr<Channel> before(&destroyed);
    const std::lock_guard held(destroyed.library->mutex);
    before.swap(destroyed.library->last_destroyed);
}

std::unique_ptr<Event> take_first(Channel& channel, std::uint64_t count) {
    const std::lock_guard held(channel.library->mutex);
    if (channel.events.empty()) {
        channel.counter.was_read(count);
        return nullptr;
    }
    std::unique_ptr<Event> event = std::move(channel.events.front());
    channel.events.pop_front();
    channel.counter.taken(count, !channel.events.empty());
    --event->account->queued;
    ++event->account->delivered;
    return event;
}

void tell_tracers(const rdma_cm_event& event) {
    const rdma_addr* ends = event.id == nullptr ? nullptr : &event.id->route.addr;
    const void* local = ends == nullptr ? nullptr : &ends->src_addr;
    const void* remote = ends == nullptr ? nullptr : &ends->dst_addr;
    FEROCE_PROBE4(cm_event, number_of(event.event), event.status, local, remote);
}

// The next event that is one for the program.
bool take_event(Channel& channel, std::uint64_t count, rdma_cm_event*& out) {
    while (std::unique_ptr<Event> event = take_first(channel, std::exchange(count, 0))) {
        // One that there is no memory for is lost: a request is refused.
        const bool good =
            !event->from_peer || within_memory("rdma_get_cm_event", [&] { return digest(*event); });
        if (good) {
            out = &event.release()->base;
            tell_tracers(*out);
            return true;
        }
        discard(std::move(event));
    }
    return false;
}

}  // namespace

Events settle_events(process::Undisturbed& call, CmId& id) {
    std::unique_lock held(id.library->mutex);
    Channel& channel = channel_of(id.base.channel);
    Events dropped = take_out(channel, id);
    dropped.remove_if([&](const std::unique_ptr<Event>& event) {
        return !event->from_peer || event->base.id == &id.base;
    });
    id.unfetched.splice(id.unfetched.end(), dropped);
    process::wait_until(call, id.library->acknowledgement, held,
                        [&] { return id.delivered == id.acknowledged; });
    return std::exchange(id.unfetched, {});
}

void move_events(process::Undisturbed& call, CmId& id, Channel& to) {
    std::unique_lock held(id.library->mutex);
    Channel& from = channel_of(id.base.channel);
    id.base.channel = &to.base;
    Events moved = take_out(from, id);
    id.queued = static_cast<std::uint32_t>(moved.size());
    if (!moved.empty()) to.counter.post();
    to.events.splice(to.events.end(), moved);
    process::wait_until(call, id.library->acknowledgement, held,
                        [&] { return id.delivered == id.acknowledged; });
}

int complete(CmId& id) {
    if (!id.synchronous) return 0;
    rdma_cm_id& base = id.base;
    {
        const process::Undisturbed part;
        if (rdma_cm_event* last = std::exchange(base.event, nullptr)) rdma_ack_cm_event(last);
    }
    if (rdma_get_cm_event(base.channel, &base.event) != 0) return -1;
    const int status = base.event->status;
    if (status == 0) return 0;
    errno = ECONNREFUSED;
    if (number_of(base.event->event) != RDMA_CM_EVENT_REJECTED)
        errno = status < 0 ? -status : status;
    return -1;
}

}  // namespace feroce::rdmacm

using namespace feroce;
using namespace feroce::rdmacm;

rdma_event_channel* rdma_create_event_channel() {
    return abi_call("rdma_create_event_channel", [&]() -> rdma_event_channel* {
        Channel* channel = make_channel();
        return channel == nullptr ? nullptr : &channel->base;
    });
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
    const Uncancelled call;
    if (channel == nullptr) return;
    if (is_current(*channel_of(channel).library))
        keep_aside(channel_of(channel));
    else
        ::close(channel->fd);  // The queue is as the fork found it, perhaps half changed: leaked.
}

int rdma_get_cm_event(rdma_event_channel* base, rdma_cm_event** out) {
    if (base == nullptr || out == nullptr)
        return fail("rdma_get_cm_event", {EINVAL, "no channel or no place for the event"});
    Channel& channel = channel_of(base);
    if (!is_current(*channel.library))
        return fail("rdma_get_cm_event", {ENODEV, "the channel is of the process that forked"});
    // Does not fail for want of memory but in digest().
    const auto take = [&channel, out](std::uint64_t count) {
        return take_event(channel, count, *out);
    };
    if (!process::fetch_event(channel.counter, base->fd, take)) return -1;
    annotate::defined(out);
    return 0;
}

int rdma_ack_cm_event(rdma_cm_event* base) {
    return abi_call("rdma_ack_cm_event", [&]() -> int {
        if (base == nullptr) return fail("rdma_ack_cm_event", {EINVAL, "no event"});
        discard(std::unique_ptr<Event>(reinterpret_cast<Event*>(base)));
        return 0;
    });
}

int rdma_write_cm_event(rdma_cm_id* base, rdma_cm_event_type type, int status,
                        std::uint64_t value) {
    return abi_call("rdma_write_cm_event", [&]() -> int {
        if (base == nullptr || number_of(type) != kUserEvent)
            return fail("rdma_write_cm_event", {EINVAL, "no id, or not RDMA_CM_EVENT_USER"});
        CmId& id = id_of(base);
        if (!is_current(*id.library))
            return fail("rdma_write_cm_event", {ENODEV, "the id is of the process that forked"});
        Events event = make_event(id, kUserEvent);
        rdma_cm_event& written = event.front()->base;
        written.status = status;
        // Its place in newer headers: the first bytes of the union.
        std::memcpy(static_cast<void*>(&written.param), &value, sizeof value);
        queue_event(std::move(event));
        return 0;
    });
}

const char* rdma_event_str(rdma_cm_event_type event) {
    static constexpr std::array kNames{"RDMA_CM_EVENT_ADDR_RESOLVED",
                                       "RDMA_CM_EVENT_ADDR_ERROR",
                                       "RDMA_CM_EVENT_ROUTE_RESOLVED",
                                       "RDMA_CM_EVENT_ROUTE_ERROR",
                                       "RDMA_CM_EVENT_CONNECT_REQUEST",
                                       "RDMA_CM_EVENT_CONNECT_RESPONSE",
                                       "RDMA_CM_EVENT_CONNECT_ERROR",
                                       "RDMA_CM_EVENT_UNREACHABLE",
                                       "RDMA_CM_EVENT_REJECTED",
                                       "RDMA_CM_EVENT_ESTABLISHED",
                                       "RDMA_CM_EVENT_DISCONNECTED",
                                       "RDMA_CM_EVENT_DEVICE_REMOVAL",
                                       "RDMA_CM_EVENT_MULTICAST_JOIN",
                                       "RDMA_CM_EVENT_MULTICAST_ERROR",
                                       "RDMA_CM_EVENT_ADDR_CHANGE",
                                       "RDMA_CM_EVENT_TIMEWAIT_EXIT",
                                       "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
                                       "RDMA_CM_EVENT_ADDRINFO_ERROR",
                                       "RDMA_CM_EVENT_USER"};
    const std::size_t index = number_of(event);
    return index < kNames.size() ? kNames[index] : "UNKNOWN EVENT";
}
