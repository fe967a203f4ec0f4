// Signal: coroutines of one loop wait for it, first come first served. It carries no state: a
// coroutine that waits for a condition looks, waits, and looks again.
#pragma once

#include <coroutine>

#include "feroce/error.hpp"
#include "feroce/suspension.hpp"

namespace feroce::rdma {

class Signal {
public:
    explicit Signal(Loop& loop) : loop_(loop) {}
    Signal(const Signal&) = delete;
    Signal& operator=(const Signal&) = delete;

    class Wait;
    // co_await signal.wait(): fails only with ETIMEDOUT or ECANCELED.
    Wait wait();
    bool notify_one();  // False if nobody waits.
    void notify_all();
    bool has_waiters() const { return !waiting_.empty(); }

private:
    Loop& loop_;
    List<Wait> waiting_;
};

class [[nodiscard]] Signal::Wait : public Limited<Signal::Wait> {
public:
    explicit Wait(Signal& signal);

    // For Awaiter: false if it is done already.
    bool start(std::coroutine_handle<> handle, const Limits* outer);
    Result<> result();

private:
    friend class Signal;

    Signal& signal_;
};

}  // namespace feroce::rdma
