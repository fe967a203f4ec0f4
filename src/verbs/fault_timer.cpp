#include "verbs/fault_timer.hpp"

#include <algorithm>
#include <utility>

namespace feroce::verbs {

FaultTimer::FaultTimer(const process::FaultPlan& plan, Raise raise) : raise_(std::move(raise)) {
    for (const process::CallFault& fault : plan.calls)
        if (!fault.call && fault.event) due_.push_back({fault.after, *fault.event});
    std::stable_sort(due_.begin(), due_.end(),
                     [](const Due& a, const Due& b) { return a.after < b.after; });
}

FaultTimer::~FaultTimer() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    task_.reset();
}

Result<void> FaultTimer::start(host::Host& host) {
    Result<std::unique_ptr<host::Task>> task = host.spawn([this] { run(); });
    if (!task) return task.error();
    task_ = std::move(*task);
    return {};
}

bool FaultTimer::wait_until(std::chrono::steady_clock::time_point when) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_until(lock, when, [this] { return ends_; });
}

void FaultTimer::run() {
    const auto start = std::chrono::steady_clock::now();
    for (const Due& due : due_) {
        if (!wait_until(start + due.after)) return;
        raise_(due.event);
    }
}

}  // namespace feroce::verbs
