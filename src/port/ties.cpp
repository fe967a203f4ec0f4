#include "port/ties.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <utility>

#include "port/epoll_calls.hpp"
#include "port/event_set.hpp"

namespace feroce::port {

bool Ties::open() {
    const ForkGate::Hold hold(gate_);
    set_ = Fd(kernel_epoll_create());
    return set_.valid();
}

bool Ties::is_tied(std::uint32_t slot) const {
    return ties_[slot].end.valid() && ties_[slot].incarnation == table_.incarnation(slot);
}

bool Ties::keep(std::uint32_t slot, std::uint64_t incarnation, Fd end) {
    if (!add_to_set(set_.get(), end.get(), EPOLLIN | EPOLLRDHUP, slot)) return false;
    ties_[slot].end = std::move(end);
    ties_[slot].incarnation = incarnation;
    return true;
}

// A child that was forked just now has a copy of the end, which would stay in the set.
void Ties::untie(std::uint32_t slot) {
    if (!ties_[slot].end.valid()) return;
    kernel_epoll_ctl(set_.get(), EPOLL_CTL_DEL, ties_[slot].end.get(), nullptr);
    ties_[slot].end.reset();
}

bool Ties::tie(std::uint32_t slot) {
    if (is_tied(slot)) return true;
    if (ended_.has(slot)) return false;
    untie(slot);
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        return false;
    Fd ours(pair[0]);
    const Fd theirs(pair[1]);
    const std::uint64_t incarnation = table_.incarnation(slot);
    const RingMessage message{
        .kind = RingMessage::Kind::Tie, .from = slot_, .incarnation = table_.incarnation(slot_)};
    return send_ring_message(socket_, table_, slot, message, theirs.get()) &&
           keep(slot, incarnation, std::move(ours));
}

bool Ties::hold(std::uint32_t slot) {
    const ForkGate::Hold hold(gate_);
    const std::lock_guard lock(mutex_);
    held_.add(slot);
    if (tie(slot)) return true;
    ties_[slot].incarnation = table_.incarnation(slot);  // For whom renew() is to make one.
    return false;
}

// Two that make one at the same time keep that of the lower slot.
void Ties::accept(const RingMessage& message, Fd end) {
    const ForkGate::Hold hold(gate_);
    const std::lock_guard lock(mutex_);
    const std::uint32_t from = message.from;
    if (from == slot_ || table_.incarnation(from) != message.incarnation) return;
    if (is_tied(from) && slot_ < from) return;
    untie(from);
    (void)keep(from, message.incarnation, std::move(end));
    untie_farthest(from < slot_ ? -1 : 1);
}

// The one that is far enough from us not to count us among its nearest.
void Ties::untie_farthest(int step) {
    int count = 0;
    std::uint32_t last = 0;
    const auto own = static_cast<int>(slot_);
    for (int s = own + step; s > 0 && s < static_cast<int>(kSlots); s += step) {
        const auto slot = static_cast<std::uint32_t>(s);
        if (!ties_[slot].end.valid() || held_.has(slot)) continue;
        ++count;
        last = slot;
    }
    if (count > kKeptPerSide) untie(last);
}

// Whatever can be read is the end: nothing is ever sent.
bool Ties::take_ended() {
    const ForkGate::Hold hold(gate_);
    const std::lock_guard lock(mutex_);
    std::array<epoll_event, 16> events;
    bool any = false;
    for (;;) {
        const int count =
            kernel_epoll_wait(set_.get(), events.data(), static_cast<int>(events.size()), 0);
        if (count <= 0) return any;
        any = true;
        for (int i = 0; i < count; ++i) {
            const auto slot =
                static_cast<std::uint32_t>(events[static_cast<std::size_t>(i)].data.u64);
            untie(slot);
            ended_.add(slot);
        }
    }
}

bool Ties::tie_to_nearest(int step) {
    bool all = true;
    int count = 0;
    const auto end = static_cast<int>(table_.slots());
    for (int s = static_cast<int>(slot_) + step; s > 0 && s < end && count < kNearest; s += step) {
        const auto slot = static_cast<std::uint32_t>(s);
        if (!table_.takes_ties(slot) || !table_.locked_by_another(slot)) continue;
        ++count;
        all = tie(slot) && all;
    }
    return all;
}

bool Ties::renew(bool nearest) {
    const ForkGate::Hold hold(gate_);
    const std::lock_guard lock(mutex_);
    // Of two that come at the same time, each having said so in the table, one sees the other.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    bool all = true;
    held_.for_each([&](std::uint32_t slot) {
        if (ties_[slot].incarnation == table_.incarnation(slot) && table_.locked_by_another(slot)) {
            all = tie(slot) && all;
            return;
        }
        held_.remove(slot);
        untie(slot);
    });
    if (nearest) all = tie_to_nearest(-1) && all;
    if (nearest) all = tie_to_nearest(1) && all;
    ended_ = {};
    return all;
}

std::uint32_t Ties::count() const {
    const std::lock_guard lock(mutex_);
    std::uint32_t out = 0;
    for (const Tie& tie : ties_) out += tie.end.valid() ? 1 : 0;
    return out;
}

void Ties::abandon() {
    for (Tie& tie : ties_) tie.end.reset();
    set_.reset();
}

}  // namespace feroce::port
