#include "feroce/task_group.hpp"

#include <coroutine>
#include <exception>
#include <utility>

namespace feroce::rdma {

struct TaskGroup::Root {
    // NOLINTNEXTLINE(readability-identifier-naming): the language's name.
    struct promise_type : ListNode, PooledFrame {
        promise_type(TaskGroup& of, Task<void>& /*task*/) : group(of) {}

        Root get_return_object() {
            group.running_.push_back(*this);
            return {};
        }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept {
            // The frame ends by itself after this; only the group must know.
            unlink();
            if (group.empty()) group.ended_.notify_all();
            return {};
        }
        void return_void() {}
        void unhandled_exception() { group.loop_.throw_later(std::current_exception()); }

        TaskGroup& group;
    };
};

TaskGroup::Root TaskGroup::run(TaskGroup& /*group*/, Task<void> task) {
    co_await std::move(task);
}

TaskGroup::~TaskGroup() {
    while (!running_.empty()) {
        auto& root = static_cast<Root::promise_type&>(running_.front());
        std::coroutine_handle<Root::promise_type>::from_promise(root).destroy();
    }
}

void TaskGroup::spawn(Task<void> task) {
    run(*this, std::move(task));
}

Task<Result<>> TaskGroup::joining() {
    while (!empty())
        if (Result<> waited = co_await ended_.wait(); !waited) co_return waited;
    co_return Result<>{};
}

}  // namespace feroce::rdma
