// EventQueue: events that a program fetches through a descriptor, as of a completion channel or an
// asynchronous event queue. An event may be about an object; destroying the object drops its events
// that are not yet fetched and waits until those that are have been acknowledged. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/result.hpp"
#include "process/event_counter.hpp"
#include "process/undisturbed.hpp"
#include "process/waiting.hpp"

namespace feroce::process {

// Of one object: how many events were fetched and how many of these acknowledged. Guarded by the
// queue's lock.
struct EventAccount {
    std::uint32_t delivered = 0;
    std::uint32_t acknowledged = 0;
};

template <class Event>
class EventQueue {
public:
    // Not a deque, which allocates every so many: completion events are on the data path.
    Result<void> open() {
        entries_.reserve(kUsual);
        return counter_.open();
    }
    int fd() const { return counter_.fd(); }
    // No event is posted from here on; the descriptors go.
    void close() { counter_.close(); }

    // `account` is that of the event's object; null if it has none.
    void post(const Event& event, EventAccount* account) {
        const std::lock_guard lock(mutex_);
        entries_.push_back({event, account});
        counter_.post();  // Under the lock: a count for every event that can be taken.
    }

    // Waits for the oldest event on `fd`, which the program may have replaced. False with errno set
    // if there is none; a thread may be cancelled or leave by siglongjmp(): see fetch_event().
    bool take(int fd, Event& out) {
        return fetch_event(fd, [this, &out](bool counted) {
            const std::lock_guard lock(mutex_);
            if (entries_.empty()) return false;
            out = entries_.front().event;
            if (EventAccount* account = entries_.front().account) ++account->delivered;
            entries_.erase(entries_.begin());
            counter_.settle(counted, !entries_.empty());
            return true;
        });
    }

    void acknowledge(EventAccount& account, std::uint32_t count) {
        const std::lock_guard lock(mutex_);
        account.acknowledged += count;
        acknowledged_.notify_all();
    }

    // Before the object of the account is destroyed. No more events about it may come. A signal
    // handler may leave the wait by siglongjmp(): the caller must bear to begin again.
    void settle(Undisturbed& call, EventAccount& account) {
        std::unique_lock lock(mutex_);
        const auto mine = [&account](const Entry& entry) { return entry.account == &account; };
        const auto kept = std::remove_if(entries_.begin(), entries_.end(), mine);
        for (auto it = kept; it != entries_.end(); ++it) counter_.retract();
        entries_.erase(kept, entries_.end());
        wait_until(call, acknowledged_, lock,
                   [&account] { return account.acknowledged >= account.delivered; });
    }

private:
    struct Entry {
        Event event;
        EventAccount* account;
    };
    static constexpr std::size_t kUsual = 16;

    std::mutex mutex_;  // Guards the entries and the accounts of their objects.
    Change acknowledged_;
    std::vector<Entry> entries_;  // Oldest first, and few.
    EventCounter counter_;
};

}  // namespace feroce::process
