#include "device/send_windows.hpp"

#include "base/assert.hpp"
#include "base/ring_tools.hpp"
#include "base/rollback.hpp"

namespace feroce::device {

transport::SendWindow& Windows::acquire(const Gid& destination, Qpn destination_qpn) {
    const auto [it, is_new] =
        entries_.try_emplace({destination, slot_of(destination_qpn)}, limits_);
    Entry& entry = it->second;
    if (is_new) entry.key = it->first;
    entry.set_shared(++entry.references > 1);
    Rollback leave([&] { release(entry); });
    if (entry.waiters.capacity() < entry.references)
        regrow(entry.waiters, std::size_t{2} * entry.references);
    if (blocked_.capacity() < entries_.size()) blocked_.reserve(2 * entries_.size());
    leave.keep();
    return entry;
}

void Windows::release(transport::SendWindow& window) {
    Entry& entry = entry_of(window);
    ASSERT(entry.references > 0);
    entry.set_shared(--entry.references > 1);
    if (entry.references > 0) return;
    ASSERT(!entry.is_waited_for() && !entry.listed);
    // By a copy of the key: erase must not be handed a reference into what it destroys.
    const auto key = entry.key;
    entries_.erase(key);
}

void Windows::add_waiter(transport::QueuePair& qp) {
    if (qp.device().waits_for_window) return;
    ASSERT(qp.window() != nullptr);
    Entry& entry = entry_of(*qp.window());
    entry.waiters.push(&qp);
    list(qp, entry);
}

void Windows::add_first(transport::QueuePair& qp, std::uint32_t left) {
    Entry& entry = entry_of(*qp.window());
    if (qp.device().waits_for_window || entry.first != nullptr) return add_waiter(qp);
    entry.first = &qp;
    entry.left = left;
    list(qp, entry);
}

void Windows::list(transport::QueuePair& qp, Entry& entry) {
    qp.device().waits_for_window = true;
    if (entry.listed) return;
    entry.listed = true;
    blocked_.push_back(&entry);
}

void Windows::remove_waiter(transport::QueuePair& qp) {
    if (!qp.device().waits_for_window) return;
    qp.device().waits_for_window = false;
    Entry& entry = entry_of(*qp.window());
    if (entry.first == &qp)
        entry.first = nullptr;
    else
        remove_if(entry.waiters, [&qp](const transport::QueuePair* other) { return other == &qp; });
    drop_unblocked();
}

void Windows::drop_unblocked() {
    std::erase_if(blocked_, [](Entry* entry) {
        entry->listed = entry->is_waited_for();
        return !entry->listed;
    });
}

Instant Windows::next_pacing(Instant now) const {
    Instant first = kNever;
    for (const Entry* entry : blocked_)
        first = std::min(first, is_open(now, *entry) ? now : entry->blocked_until(now));
    return first;
}

}  // namespace feroce::device
