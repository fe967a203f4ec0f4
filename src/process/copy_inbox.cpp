#include "process/copy_inbox.hpp"

namespace feroce::process {

namespace {

// More copies than are on their way at a time, so that the vectors seldom grow under a lock.
constexpr std::size_t kUsual = 256;

}  // namespace

CopyInbox::CopyInbox(std::function<void()> wake) : wake_(std::move(wake)) {
    done_.reserve(kUsual);
    taken_.reserve(kUsual);
}

void CopyInbox::copy_done(mem::CopyToken token, bool good) {
    {
        const std::lock_guard guard(lock_);
        done_.push_back({token, good});
    }
    if (!pending_.exchange(true)) wake_();
}

void CopyInbox::empty_into(Instant now, device::Engine& engine) {
    // Before the look: what comes after it sets the flag again.
    pending_.store(false);
    {
        const std::lock_guard guard(lock_);
        taken_.swap(done_);
    }
    for (const Done& done : taken_) engine.copy_done(now, done.token, done.good);
    taken_.clear();
}

}  // namespace feroce::process
