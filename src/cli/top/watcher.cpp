#include "cli/top/watcher.hpp"

#include <csignal>

#include "cli/output.hpp"
#include "cli/state.hpp"

namespace feroce::cli {

TopLook look_around() {
    TopLook out;
    std::vector<unsigned> silent;  // Those are seen by their pages.
    out.devices = list_devices();
    // Processes answer at once; what is waited for are those that do not.
    out.at = std::chrono::steady_clock::now().time_since_epoch();
    out.processes = all_processes();
    try {
        out.sessions = live_sessions(silent);
        out.disks = served_disks();
    } catch (const UsageError&) {  // There is no directory for doors, hence nobody behind one.
    }
    return out;
}

Watcher::Watcher(std::chrono::milliseconds every) : every_(every) {
    // Signals are for the thread that draws.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &before);
    thread_ = std::thread([this] { run(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watcher::~Watcher() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    ended_.notify_all();
    thread_.join();
}

std::shared_ptr<const TopSample> Watcher::newest() const {
    const std::lock_guard lock(mutex_);
    return newest_;
}

void Watcher::run() {
    Sampler sampler;
    for (;;) {
        const auto next = std::chrono::steady_clock::now() + every_;
        auto sample = std::make_shared<const TopSample>(sampler.take(look_around()));
        std::unique_lock lock(mutex_);
        newest_ = std::move(sample);
        if (ended_.wait_until(lock, next, [this] { return stop_; })) return;
    }
}

}  // namespace feroce::cli
