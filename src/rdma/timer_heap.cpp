#include "base/assert.hpp"
#include "feroce/loop.hpp"

namespace feroce::rdma {

void TimerHeap::place(std::size_t index, Timer& timer) {
    heap_[index] = &timer;
    timer.index_ = index;
}

// Restores the order around one place, upwards or downwards.
void TimerHeap::sift(std::size_t index) {
    Timer& timer = *heap_[index];
    for (; index > 0 && timer.at_ < heap_[(index - 1) / 2]->at_; index = (index - 1) / 2)
        place(index, *heap_[(index - 1) / 2]);
    for (std::size_t child = 2 * index + 1; child < heap_.size(); child = 2 * index + 1) {
        if (child + 1 < heap_.size() && heap_[child + 1]->at_ < heap_[child]->at_) ++child;
        if (timer.at_ <= heap_[child]->at_) break;
        place(index, *heap_[child]);
        index = child;
    }
    place(index, timer);
}

void TimerHeap::insert(Timer& timer, Instant at) {
    ASSERT(!timer.armed());
    timer.at_ = at;
    heap_.push_back(&timer);
    sift(heap_.size() - 1);
}

void TimerHeap::remove(Timer& timer) {
    ASSERT(timer.index_ < heap_.size() && heap_[timer.index_] == &timer);
    const std::size_t hole = timer.index_;
    timer.index_ = Timer::kIdle;
    Timer& last = *heap_.back();
    heap_.pop_back();
    if (&last == &timer) return;
    heap_[hole] = &last;
    sift(hole);
}

bool TimerHeap::fire(Instant now) {
    // A timer that arms itself again for a time gone by must not keep the loop here.
    for (std::size_t most = heap_.size(), fired = 0;; ++fired) {
        if (fired == most || heap_.empty() || heap_.front()->at_ > now) return fired > 0;
        Timer& due = *heap_.front();
        remove(due);
        due.loop_.contain([&due] { due.expired_(due); });
    }
}

}  // namespace feroce::rdma
