// Call<T>: an operation of a disk, a session or a container. Nothing happens before it is awaited
// or waited for.
//
//   Result<> done = co_await disk.read(offset, into);                // In a coroutine,
//   Result<> done = disk.read(offset, into).wait();                  // or blocking,
//   Result<> done = disk.read(offset, into).within(10ms).wait();     // or with a limit.
//
// It is a Task, and can be used wherever one can. The handle that it was made with outlives it.
#pragma once

#include <stop_token>
#include <utility>

#include "feroce/error.hpp"
#include "feroce/loop.hpp"
#include "feroce/task.hpp"

namespace feroce::rdma {

template <class T = void>
class [[nodiscard]] Call : public Task<Result<T>> {
    using Base = Task<Result<T>>;

public:
    Call(Loop& loop, Base task) : Base(std::move(task)), loop_(&loop) {}

    // Limits add up: the earliest deadline and a stop of any token count, as for every task.
    Call until(Instant deadline) && { return {*loop_, std::move(task()).until(deadline)}; }
    Call within(Duration time) && { return std::move(*this).until(loop_->after(time)); }
    Call with(const std::stop_token& stop) && { return {*loop_, std::move(task()).with(stop)}; }
    Call shielded() && { return {*loop_, std::move(task()).shielded()}; }

    // Blocks this thread; its loop goes on meanwhile. In a coroutine without the limits of its
    // task.
    Result<T> wait() && { return loop_->run(Base(std::move(task()))); }

private:
    Base& task() { return *this; }

    Loop* loop_;
};

}  // namespace feroce::rdma
