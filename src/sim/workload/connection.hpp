// Connection: two endpoints and the life they share: opened, broken by faults or on purpose, closed
// with everything accounted for, opened again.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "sim/workload/endpoint.hpp"

namespace feroce::sim {

class Connection {
public:
    // Polls all completion queues and hands out what is there.
    using Drain = std::function<void()>;

    Connection(Context& context, Station& a, Station& b, const ConnectionPlan& plan);

    void open();
    void close(const Drain& drain);  // Errors, flushes, destroys, settles.
    void reset(const Drain& drain);  // The same, but open() uses the queue pairs again.
    bool is_open() const { return opened_; }

    Endpoint& side(std::size_t i) { return i == 0 ? a_ : b_; }
    const ConnectionPlan& plan() const { return plan_; }

    void destroy_side(std::size_t i, const Drain& drain);     // Mid flight.
    bool deregister(std::size_t i, Endpoint::Victim victim);  // Mid flight.
    void undermine() { undermined_ = true; }                  // Something else was taken away.
    // To SQD on both sides. False if the connection is not in a state for it.
    bool drain();
    // A side reached the end of its work. True if both have: time to resume().
    bool note_drained(const transport::QueuePair& qp);
    // With other attributes and addresses, back to RTS.
    void resume();
    void note_failure() { broken_ = true; }
    void expose(bool yes) { exposed_ = yes; }
    bool broken() const { return broken_; }
    bool needs_repair() const { return broken_ || undermined_; }
    Allowance allowance(std::size_t i);
    bool may_reset() const { return !a_.has_own_srq(); }  // Its receives would outlive their keys.
    void check_depth();  // No more READs and atomics are outstanding than was agreed.
    bool idle();         // Nothing left to do or to arrive.

private:
    Psn draw_psn();
    void note_psns();
    static void fail(Endpoint& side);  // To ERR.
    void end(const Drain& drain);      // To ERR, and all work accounted for.
    void change_depth();
    void change_addresses();

    Context& context_;
    ConnectionPlan plan_;
    Endpoint a_;
    Endpoint b_;
    bool opened_ = false;
    bool exposed_ = false;     // To faults since it was opened: retries may run out.
    bool broken_ = false;      // Work has failed, or one side is gone.
    bool undermined_ = false;  // Memory was taken away.
    // By side, of queue pairs that are used again: how far the last life had got. The next one's
    // first PSNs are far from what may still be on its way.
    std::array<std::optional<Psn>, 2> last_psns_;
    std::uint32_t depth_ = 0;  // As agreed when it was opened or resumed.
    // While draining: where each side stopped, from the moment it said so.
    bool draining_ = false;
    std::array<std::optional<Psn>, 2> stops_;
};

}  // namespace feroce::sim
