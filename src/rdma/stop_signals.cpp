#include "feroce/stop_signals.hpp"

#include <atomic>
#include <cerrno>

#include "base/assert.hpp"

namespace feroce::rdma {
namespace {

// Written before a handler that reads it is set, and after it was taken back. Lock-free, as a
// handler needs it.
std::atomic<Loop*> stopped{nullptr};
static_assert(std::atomic<Loop*>::is_always_lock_free);

void stop(int /*signal*/) {
    const int kept = errno;
    if (Loop* loop = stopped.load(std::memory_order_acquire)) loop->stop();
    errno = kept;
}

}  // namespace

StopSignals::StopSignals(Loop& loop, std::initializer_list<int> signals) {
    Loop* none = nullptr;
    ASSERT(stopped.compare_exchange_strong(none, &loop));
    for (const int signal : signals) {
        struct sigaction action {};
        action.sa_handler = stop;
        ::sigemptyset(&action.sa_mask);
        action.sa_flags = SA_RESTART;
        struct sigaction old {};
        if (::sigaction(signal, &action, &old) == 0) before_.emplace_back(signal, old);
    }
}

StopSignals::~StopSignals() {
    for (const auto& [signal, old] : before_) ::sigaction(signal, &old, nullptr);
    stopped.store(nullptr, std::memory_order_release);
}

}  // namespace feroce::rdma
