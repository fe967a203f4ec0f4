// FaultTimer: the events that FEROCE_FAULTS asks for by time (PORT_ERR@500ms), on a thread of their
// own that ends with the last of them. None is made if none are asked for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "host/host.hpp"
#include "process/call_faults.hpp"

namespace feroce::verbs {

class FaultTimer {
public:
    using Raise = std::function<void(process::FaultEvent)>;
    // Faults of calls in `plan` are passed over.
    FaultTimer(const process::FaultPlan& plan, Raise raise);
    ~FaultTimer();  // Waits for the thread; what is not due yet does not happen.
    FaultTimer(const FaultTimer&) = delete;
    FaultTimer& operator=(const FaultTimer&) = delete;

    bool empty() const { return due_.empty(); }
    Result<void> start(host::Host& host);  // Times count from here.

private:
    struct Due {
        std::chrono::milliseconds after;
        process::FaultEvent event;
    };
    void run();
    bool wait_until(std::chrono::steady_clock::time_point when);  // False: it is to end.

    std::vector<Due> due_;  // By time. Constant.
    const Raise raise_;
    std::mutex mutex_;  // Guards ends_.
    std::condition_variable changed_;
    bool ends_ = false;
    std::unique_ptr<host::Task> task_;
};

}  // namespace feroce::verbs
