// Limits: what bounds a task or an awaited operation: a deadline and stop tokens. Scopes compose:
// an inner one adds to the outer ones and never replaces them, so the earliest deadline counts, and
// a stop of any token. See docs/adr/0016-one-way-to-cancel.md.
#pragma once

#include <algorithm>
#include <memory>
#include <stop_token>

#include "feroce/time.hpp"

namespace feroce::rdma {

class Limits {
public:
    Instant deadline() const { return deadline_; }
    // Stops when any of the tokens does.
    const std::stop_token& stop() const { return stop_; }

    void add(Instant deadline) { deadline_ = std::min(deadline_, deadline); }
    // Allocates for the second and each further token, not for the first.
    void add(const std::stop_token& token);
    void add(const Limits& outer) {
        add(outer.deadline_);
        add(outer.stop_);
    }

private:
    struct Either;

    Instant deadline_ = kNever;
    std::stop_token stop_;
    std::shared_ptr<Either> either_;  // What stops stop_, if there are several tokens.
};

}  // namespace feroce::rdma
