// Call<T>: an operation of a container. Nothing happens before it is awaited or waited for.
//
//   Result<bool> put = co_await map.put(key, value);                 // In a coroutine,
//   Result<bool> put = map.put(key, value).wait();                   // or blocking,
//   Result<bool> put = map.put(key, value).within(10ms).wait();      // or with a limit.
//
// It is a Task, and can be used wherever one can. The container's handle outlives it.
#pragma once

#include <stop_token>
#include <utility>

#include "feroce/error.hpp"
#include "feroce/loop.hpp"
#include "feroce/task.hpp"

namespace feroce::gas {

template <class T = void>
class [[nodiscard]] Call : public rdma::Task<rdma::Result<T>> {
    using Task = rdma::Task<rdma::Result<T>>;

public:
    Call(rdma::Loop& loop, Task task) : Task(std::move(task)), loop_(&loop) {}

    // Limits add up: the earliest deadline and a stop of any token count, as for every task.
    Call until(Instant deadline) && { return {*loop_, std::move(task()).until(deadline)}; }
    Call within(Duration time) && { return std::move(*this).until(loop_->after(time)); }
    Call with(const std::stop_token& stop) && { return {*loop_, std::move(task()).with(stop)}; }
    Call shielded() && { return {*loop_, std::move(task()).shielded()}; }

    // Blocks this thread; its loop goes on meanwhile. In a coroutine without the limits of its
    // task.
    rdma::Result<T> wait() && { return loop_->run(Task(std::move(task()))); }

private:
    Task& task() { return *this; }

    rdma::Loop* loop_;
};

}  // namespace feroce::gas
