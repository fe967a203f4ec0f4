// Connection: two endpoints and the life they share: opened, broken by faults or on purpose, closed
// with everything accounted for, opened again.
#pragma once

#include <cstdint>
#include <functional>

#include "sim/workload/endpoint.hpp"

namespace feroce::sim {

class Connection {
public:
    // Polls all completion queues and hands out what is there.
    using Drain = std::function<void()>;

    Connection(Context& context, Station& a, Station& b, const ConnectionPlan& plan);

    void open();
    void close(const Drain& drain);  // Errors, flushes, destroys, settles.
    bool is_open() const { return opened_; }

    Endpoint& side(std::size_t i) { return i == 0 ? a_ : b_; }
    const ConnectionPlan& plan() const { return plan_; }

    void destroy_side(std::size_t i);                         // Mid flight.
    bool deregister(std::size_t i, Endpoint::Victim victim);  // Mid flight.
    void note_failure() { broken_ = true; }
    void expose(bool yes) { exposed_ = yes; }
    bool broken() const { return broken_; }
    bool needs_repair() const { return broken_ || undermined_; }
    Allowance allowance(std::size_t i);
    bool idle();  // Nothing left to do or to arrive.

private:
    Psn draw_psn();

    Context& context_;
    ConnectionPlan plan_;
    Endpoint a_;
    Endpoint b_;
    bool opened_ = false;
    bool exposed_ = false;     // To faults since it was opened: retries may run out.
    bool broken_ = false;      // Work has failed, or one side is gone.
    bool undermined_ = false;  // Memory was taken away.
};

}  // namespace feroce::sim
