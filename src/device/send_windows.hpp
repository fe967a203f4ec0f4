// Windows: one SendWindow for each destination shard (address and top byte of the QPN), because
// that is where a receive buffer fills, and the queue pairs that wait for each to open, first come
// first served. A window lives while queue pairs hold it, at one address. Waiting and waking
// allocate nothing (room is made by acquire) and cost nothing for windows on which nobody waits.
// Engine lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/gid.hpp"
#include "base/ids.hpp"
#include "base/ring.hpp"
#include "base/time.hpp"
#include "transport/queue_pair.hpp"
#include "transport/send_window.hpp"

namespace feroce::device {

class Windows {
public:
    explicit Windows(const transport::SendWindow::Limits& limits) : limits_(limits) {}

    // Counted: one release for each acquire. The last one forgets the window.
    transport::SendWindow& acquire(const Gid& destination, Qpn destination_qpn);
    void release(transport::SendWindow& window);
    std::size_t size() const { return entries_.size(); }

    // qp.window() is one of ours. Once only, however often it is added: see
    // qp.device().waits_for_window.
    void add_waiter(transport::QueuePair& qp);
    // The same, in the midst of its turn, of which `left` is left: before all others, unless one
    // of these is in the midst of its own.
    void add_first(transport::QueuePair& qp, std::uint32_t left);
    void remove_waiter(transport::QueuePair& qp);  // Before its window is released.
    bool has_waiters() const { return !blocked_.empty(); }

    // Takes waiters off, oldest first, for as long as their window lets them send, and calls
    // f(qp, left): what is left of its turn, 0 if that is to begin. `f` may send and may add
    // waiters (one may be woken again, first in line), but not remove or release.
    template <class F>
    void wake(Instant now, F&& f) {
        const std::size_t count = blocked_.size();
        for (std::size_t i = 0; i < count; ++i) wake_one(now, *blocked_[i], f);
        drop_unblocked();
    }
    // When the first window with waiters opens by itself, which one by a ring may have done
    // already; kNever if acknowledgements must come.
    Instant next_pacing(Instant now) const;

private:
    // Derived, so that the way from a window back to its entry is a cast.
    struct Entry : transport::SendWindow {
        explicit Entry(const Limits& limits) : SendWindow(limits) {}

        std::uint32_t references = 0;
        bool listed = false;  // In blocked_: true exactly when it has waiters, but during wake().
        // Waits in the midst of its turn, before all others; null: none does.
        transport::QueuePair* first = nullptr;
        std::uint32_t left = 0;  // Of that turn.
        bool is_waited_for() const { return first != nullptr || !waiters.empty(); }
        const transport::QueuePair& oldest() const { return first ? *first : *waiters.front(); }
        Ring<transport::QueuePair*> waiters{0};  // Capacity >= references.
        std::pair<Gid, SlotNumber> key;
    };

    static Entry& entry_of(transport::SendWindow& window) { return static_cast<Entry&>(window); }

    // For the oldest waiter.
    static bool is_open(Instant now, const Entry& entry) {
        return entry.may_send(now) ||
               (entry.may_run_ahead() && !entry.oldest().machine().waits_for_window(now));
    }
    template <class F>
    void wake_one(Instant now, Entry& entry, F& f) {
        std::size_t n = entry.waiters.size() + (entry.first != nullptr ? 1 : 0);
        for (; n > 0 && is_open(now, entry); --n) {
            transport::QueuePair* qp = std::exchange(entry.first, nullptr);
            const std::uint32_t left = qp != nullptr ? entry.left : 0;
            if (qp == nullptr) {
                qp = entry.waiters.front();
                entry.waiters.pop();
            }
            qp->device().waits_for_window = false;
            f(*qp, left);
        }
    }
    void drop_unblocked();
    void list(transport::QueuePair& qp, Entry& entry);  // It waits now.

    transport::SendWindow::Limits limits_;
    std::map<std::pair<Gid, SlotNumber>, Entry> entries_;
    std::vector<Entry*> blocked_;  // Capacity >= entries_.size().
};

}  // namespace feroce::device
