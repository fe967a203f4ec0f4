#include "sim/scheduler.hpp"

#include <algorithm>
#include <utility>

namespace feroce::sim {

void Scheduler::at(Instant when, Action action) {
    heap_.push_back({std::max(when, now_), next_order_++, std::move(action)});
    std::push_heap(heap_.begin(), heap_.end(), later);
}

bool Scheduler::step() {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Event event = std::move(heap_.back());
    heap_.pop_back();
    now_ = event.when;
    ++events_run_;
    event.action();
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
