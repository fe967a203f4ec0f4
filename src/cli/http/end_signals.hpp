// Waiting for SIGTERM or SIGINT between pieces of work. They are blocked before there is another
// thread, which would be given them.
#pragma once

#include <csignal>

#include <chrono>
#include <ctime>

namespace feroce::cli {

class EndSignals {
public:
    EndSignals() {
        ::sigemptyset(&signals_);
        ::sigaddset(&signals_, SIGTERM);
        ::sigaddset(&signals_, SIGINT);
        ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    }
    // True if one came.
    bool wait(std::chrono::milliseconds most) const {
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
        const std::chrono::nanoseconds rest = most - seconds;
        const timespec pause{.tv_sec = seconds.count(), .tv_nsec = rest.count()};
        return ::sigtimedwait(&signals_, nullptr, &pause) > 0;
    }

private:
    sigset_t signals_{};
};

}  // namespace feroce::cli
