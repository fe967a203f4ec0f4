// TaskGroup: tasks that run beside their owner, and end with it at the latest.
#pragma once

#include "feroce/call.hpp"
#include "feroce/list.hpp"
#include "feroce/loop.hpp"
#include "feroce/signal.hpp"
#include "feroce/task.hpp"

namespace feroce::rdma {

class TaskGroup {
public:
    explicit TaskGroup(Loop& loop) : loop_(loop), ended_(loop) {}
    ~TaskGroup();
    TaskGroup(const TaskGroup&) = delete;
    TaskGroup& operator=(const TaskGroup&) = delete;

    // Runs the task until it first waits, with the limits that it was given and no others. What it
    // throws comes out of Loop::poll and ends no other task.
    void spawn(Task<void> task);
    bool empty() const { return running_.empty(); }
    Loop& loop() const { return loop_; }
    // Until all have ended; fails only with ETIMEDOUT or ECANCELED, and the tasks go on then.
    Call<> join() { return {loop_, joining()}; }

private:
    Task<Result<>> joining();
    struct Root;  // The outermost coroutine of a task.
    static Root run(TaskGroup& group, Task<void> task);

    Loop& loop_;
    Signal ended_;
    List<ListNode> running_;
};

}  // namespace feroce::rdma
