// Chains of one step that keep its operand: what Lanes::read, write and the atomics give.
#pragma once

#include "feroce/gas/chain.hpp"

namespace feroce::gas {

class Lanes;

namespace detail {

// A one-step chain that knows its result.
template <class T>
class [[nodiscard]] Value : public Chain {
public:
    using Chain::Chain;
    Result<T> await_resume() { return with(Chain::await_resume()); }
    Result<T> wait() { return with(Chain::wait()); }
    T& place() { return value_; }

private:
    Result<T> with(const Result<>& done) {
        if (!done) return done.error();
        return value_;
    }
    T value_{};
};

// A WRITE that keeps what it writes.
template <class T>
class [[nodiscard]] Store : public Chain {
public:
    Store(Lanes& lanes, NodeId node, const T& value) : Chain(lanes, node), value_(value) {}
    const T& place() const { return value_; }

private:
    T value_;
};

}  // namespace detail

}  // namespace feroce::gas
