// Looks at all processes again and again, on a thread of its own: one that does not answer is
// waited for, and the keys must not wait with it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "cli/top/sample.hpp"

namespace feroce::cli {

TopLook look_around();  // Once, now.

class Watcher {
public:
    explicit Watcher(std::chrono::milliseconds every);
    ~Watcher();
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;

    std::shared_ptr<const TopSample> newest() const;  // Null before the first look.

private:
    void run();

    const std::chrono::milliseconds every_;
    mutable std::mutex mutex_;  // Guards newest_ and stop_.
    std::condition_variable ended_;
    std::shared_ptr<const TopSample> newest_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace feroce::cli
