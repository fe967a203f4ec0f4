// Timers: queue pairs by deadline, an indexed binary heap; DeviceRecord::timer_position is the
// place (0: none). A deadline that moves back leaves its entry where it is: acknowledgements move
// it back all the time, and the entry is looked at once, when it fires. So entries are never late
// but may be early, and whoever takes one asks the machine for its deadline and updates again. A
// queue pair that waits for nothing has no entry: the heap is as small as what is under way, and
// none fires for a queue pair that has long gone idle and cold. Allocates nothing after
// construction. Engine lock.
#pragma once

#include <cstddef>
#include <vector>

#include "base/time.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::device {

class Timers {
public:
    explicit Timers(std::size_t capacity);  // Queue pairs that may exist at once.

    // The entry fires at `deadline` or before. kNever removes it.
    void update(transport::QueuePair& qp, Instant deadline);
    void remove(transport::QueuePair& qp);  // Before it dies; nothing if it has no entry.
    // Takes an entry that is due, the earliest first; null if none is.
    transport::QueuePair* pop_due(Instant now);
    // When the first entry fires, kNever if there is none. May be earlier than any real deadline.
    Instant next() const { return heap_.empty() ? kNever : heap_.front().deadline; }
    std::size_t size() const { return heap_.size(); }

private:
    struct Entry {
        Instant deadline;
        transport::QueuePair* qp;
    };

    void place(std::size_t index, const Entry& entry);
    void sift_up(std::size_t index, const Entry& entry);
    void sift_down(std::size_t index, const Entry& entry);
    void remove_at(std::size_t index);

    std::vector<Entry> heap_;  // timer_position is the index + 1.
};

}  // namespace feroce::device
