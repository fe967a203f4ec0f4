#include "sim/scheduler.hpp"

#include <algorithm>
#include <utility>

namespace feroce::sim {

void Scheduler::at(Instant when, Action action) {
    if (free_.empty()) {
        free_.push_back(actions_.size());
        actions_.emplace_back();
    }
    const std::size_t place = free_.back();
    free_.pop_back();
    actions_[place] = std::move(action);
    heap_.push_back({std::max(when, now_), next_order_++, place});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
}

bool Scheduler::step() {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    const Event event = heap_.back();
    heap_.pop_back();
    now_ = event.when;
    ++events_run_;
    // Taken out: it may ask for events itself, and what it owns ends with it.
    const Action action = std::exchange(actions_[event.action], nullptr);
    free_.push_back(event.action);
    action();
    if (after_each_) after_each_();
    return true;
}

void Scheduler::run_until(Instant end) {
    run_until(end, [] { return false; });
}

bool Scheduler::run_until(Instant end, const std::function<bool()>& done) {
    while (!done()) {
        if (heap_.empty() || heap_.front().when > end) {
            now_ = std::max(now_, end);
            return done();
        }
        step();
    }
    return true;
}

}  // namespace feroce::sim
