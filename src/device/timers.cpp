#include "device/timers.hpp"

#include "base/assert.hpp"

namespace feroce::device {

Timers::Timers(std::size_t capacity) {
    heap_.reserve(capacity);
}

void Timers::update(transport::QueuePair& qp, Instant deadline) {
    if (deadline == kNever) return remove(qp);
    if (qp.device().timer_position != 0) {
        const std::size_t index = qp.device().timer_position - 1;
        if (deadline < heap_[index].deadline) sift_up(index, {deadline, &qp});
        return;
    }
    ASSERT(heap_.size() < heap_.capacity());
    heap_.push_back({deadline, &qp});
    sift_up(heap_.size() - 1, {deadline, &qp});
}

void Timers::remove(transport::QueuePair& qp) {
    if (qp.device().timer_position != 0) remove_at(qp.device().timer_position - 1);
}

transport::QueuePair* Timers::pop_due(Instant now) {
    if (next() > now || heap_.empty()) return nullptr;
    transport::QueuePair* qp = heap_.front().qp;
    remove_at(0);
    return qp;
}

void Timers::place(std::size_t index, const Entry& entry) {
    heap_[index] = entry;
    entry.qp->device().timer_position = static_cast<std::uint32_t>(index + 1);
}

void Timers::sift_up(std::size_t index, const Entry& entry) {
    while (index > 0) {
        const std::size_t parent = (index - 1) / 2;
        if (heap_[parent].deadline <= entry.deadline) break;
        place(index, heap_[parent]);
        index = parent;
    }
    place(index, entry);
}

void Timers::sift_down(std::size_t index, const Entry& entry) {
    for (;;) {
        std::size_t child = 2 * index + 1;
        if (child >= heap_.size()) break;
        if (child + 1 < heap_.size() && heap_[child + 1].deadline < heap_[child].deadline) ++child;
        if (entry.deadline <= heap_[child].deadline) break;
        place(index, heap_[child]);
        index = child;
    }
    place(index, entry);
}

void Timers::remove_at(std::size_t index) {
    ASSERT(index < heap_.size());
    heap_[index].qp->device().timer_position = 0;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (index == heap_.size()) return;
    // The last entry takes the hole; it may belong above or below it.
    const bool rises = index > 0 && last.deadline < heap_[(index - 1) / 2].deadline;
    if (rises)
        sift_up(index, last);
    else
        sift_down(index, last);
}

}  // namespace feroce::device
