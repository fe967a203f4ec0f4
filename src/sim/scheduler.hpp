// Scheduler: the virtual clock and everything that will happen. Events run in the order of their
// time and, at one time, in the order they were asked for, so a run depends on nothing but its
// inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/time.hpp"

namespace feroce::sim {

class Scheduler {
public:
    using Action = std::function<void()>;

    Instant now() const { return now_; }
    std::uint64_t events_run() const { return events_run_; }

    void at(Instant when, Action action);  // A time in the past means now.
    void after(Duration delay, Action action) { at(now_ + delay, std::move(action)); }

    // Runs behind every event, at the same time; it must change nothing.
    void after_each(Action action) { after_each_ = std::move(action); }

    bool step();  // Runs the earliest event; false if there is none.
    void run_until(Instant end);
    // Until `done` holds (asked before every event), at most until `end`. True if it held.
    bool run_until(Instant end, const std::function<bool()>& done);

private:
    // Small, since a heap moves its elements about: the action stays where it is.
    struct Event {
        Instant when;
        std::uint64_t order;
        std::size_t action;  // Index into actions_.
    };
    struct Later {
        bool operator()(const Event& a, const Event& b) const {
            return a.when != b.when ? a.when > b.when : a.order > b.order;
        }
    };

    // Not zero: an engine may take the epoch for "never happened".
    Instant now_ = Instant(std::chrono::seconds(1));
    std::uint64_t next_order_ = 0;
    std::uint64_t events_run_ = 0;
    std::vector<Event> heap_;
    std::vector<Action> actions_;    // Of the events in heap_, and
    std::vector<std::size_t> free_;  // places that none of these has.
    Action after_each_;
};

}  // namespace feroce::sim
