// Shelter: for what can be given up by its caller but not left in its middle: a place in a queue, a
// word that was swapped. The task runs without the limits of the caller, and the caller waits for
// it within them. A caller that stops waiting (a deadline, a stop, or its coroutine is destroyed)
// has its error at once; the task goes on in the group, and what it then brings is undone:
//
//     Shelter queued(group, stand_in_line(line), [&lanes](Turn turn) { return pass_on(turn); });
//     Result<Turn> turn = co_await queued;
//
// So the task and the undoing take by value what they need, or refer to what outlives the group;
// they use nothing of the caller's frame. If the limits are over before it begins, it does not; a
// shielded one always begins, and only a caller that is destroyed leaves it.
#pragma once

#include <cerrno>
#include <coroutine>
#include <type_traits>
#include <utility>

#include "feroce/error.hpp"
#include "feroce/suspension.hpp"
#include "feroce/task.hpp"
#include "feroce/task_group.hpp"

namespace feroce::rdma {

// Awaits a task that has been started by somebody else.
template <class T>
class RunningTask {
public:
    explicit RunningTask(Task<T>& task) : task_(task) {}
    bool await_ready() const { return task_.done(); }
    void await_suspend(std::coroutine_handle<> next) { task_.continue_with(next); }
    T await_resume() { return task_.await_resume(); }

private:
    Task<T>& task_;
};

// For what is right as it is, whether its caller hears of it or not.
struct NoUndo {
    template <class... Value>
    Task<void> operator()(Value...) const {
        co_return;
    }
};

// Undo is called with the value of a task whose caller has gone, and gives a Task<void>.
template <class T, class Undo>
class [[nodiscard]] Shelter : public Suspension {
public:
    Shelter(TaskGroup& group, Task<Result<T>> task, Undo undo)
        : Suspension(group.loop(),
                     [](Suspension& waiting, int code) {
                         auto& self = static_cast<Shelter&>(waiting);
                         if (self.done()) return;
                         self.set_code(code);
                         self.leave_to_group();
                         self.finish();
                     }),
          group_(group),
          task_(std::move(task)),
          undo_(std::move(undo)) {}
    ~Shelter() {
        if (runs_ && !task_.done()) leave_to_group();
    }

    using Suspension::shield;

    bool await_ready() const { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> handle) {
        set_code(begin(handle, detail::limits_of(handle)));
        if (code() != 0) return handle;
        runs_ = true;
        return task_.continue_with(handle);
    }
    Result<T> await_resume() {
        if (code() == ETIMEDOUT) return Error(ETIMEDOUT, "the operation was not done in time");
        if (code() != 0) return Error(code(), "the program asked to stop the operation");
        settle();
        return task_.await_resume();
    }

private:
    static Task<void> go_on(Task<Result<T>> task, Undo undo) {
        Result<T> done = co_await RunningTask<Result<T>>(task);
        if (!done) co_return;
        if constexpr (std::is_void_v<T>)
            co_await undo();
        else
            co_await undo(*std::move(done));
    }
    void leave_to_group() {
        runs_ = false;
        group_.spawn(go_on(std::move(task_), std::move(undo_)));
    }

    TaskGroup& group_;
    Task<Result<T>> task_;
    Undo undo_;
    bool runs_ = false;  // Here, not in the group.
};

}  // namespace feroce::rdma
