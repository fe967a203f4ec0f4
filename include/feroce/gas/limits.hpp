// Where limits count in an operation that changes shared memory. A deadline or a stop ends it while
// it waits and as long as it has changed nothing. From its first change on it is shielded: it goes
// on until the change is whole, or the node that it changes is found lost, and gives its result.
// So an operation that failed with ETIMEDOUT or ECANCELED has left no lock and taken no element.
//
//   if (const auto in_time = co_await within_limits(loop); !in_time) co_return in_time.error();
//   const auto found = co_await lanes.compare_exchange(word, before, after).shielded();
#pragma once

#include <cerrno>
#include <coroutine>

#include "feroce/loop.hpp"
#include "feroce/task.hpp"

namespace feroce::gas {

// Whether the limits of the coroutine that awaits it are over. Never suspends.
class [[nodiscard]] LimitCheck {
public:
    explicit LimitCheck(rdma::Loop& loop) : loop_(loop) {}

    bool await_ready() const { return false; }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> handle) {
        const rdma::Limits* limits = rdma::detail::limits_of(handle);
        if (limits == nullptr) return false;
        if (limits->stop().stop_requested())
            code_ = ECANCELED;
        else if (limits->deadline() != kNever && limits->deadline() <= loop_.now())
            code_ = ETIMEDOUT;
        return false;
    }
    rdma::Result<> await_resume() const {
        if (code_ == ETIMEDOUT) return rdma::Error(code_, "the time for the operation is over");
        if (code_ != 0) return rdma::Error(code_, "the program asked to stop the operation");
        return {};
    }

private:
    rdma::Loop& loop_;
    int code_ = 0;
};

inline LimitCheck within_limits(rdma::Loop& loop) {
    return LimitCheck(loop);
}

}  // namespace feroce::gas
