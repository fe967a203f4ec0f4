#include "sim/sim_runtime.hpp"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace feroce::sim {
namespace {

// Events of the ABI are real descriptors, also here; looking at them takes no time.
bool is_readable(int fd) {
    pollfd look{fd, POLLIN, 0};
    return ::poll(&look, 1, 0) > 0;
}

}  // namespace

SimRuntime::SimRuntime(std::uint64_t seed)
    : node_(here()), random_(seed * 1024 + node_.machine().id()) {}

void SimRuntime::wait(Instant until, std::span<const int> fds) {
    // News that came since the last look wakes nobody any more.
    if (std::exchange(woken_, false) || std::any_of(fds.begin(), fds.end(), is_readable)) return;
    if (until <= now()) return;
    wait_for_news(until == kNever ? std::chrono::hours(1) : until - now());
    woken_ = false;
}

void SimRuntime::wake() {
    woken_ = true;
    node_.poke();
}

}  // namespace feroce::sim
