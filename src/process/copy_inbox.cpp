#include "process/copy_inbox.hpp"

#include <algorithm>

namespace feroce::process {

namespace {

// More copies than are on their way at a time, so that the vectors seldom grow.
constexpr std::size_t kUsual = 256;

}  // namespace

CopyInbox::CopyInbox(std::function<void()> wake) : wake_(std::move(wake)) {
    make_room(kUsual);
}

void CopyInbox::make_room(std::size_t copies) {
    if (copies <= room_) return;
    const std::size_t room = std::max(copies, 2 * room_);
    taken_.reserve(room);
    std::vector<Done> larger;
    larger.reserve(room);
    {
        const std::lock_guard guard(lock_);
        larger.assign(done_.begin(), done_.end());
        larger.swap(done_);
    }
    room_ = room;
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
    // By number and value: the engine may start copies meanwhile, and make room for them.
    for (std::size_t i = 0; i < taken_.size(); ++i) {
        const Done done = taken_[i];
        engine.copy_done(now, done.token, done.good);
    }
    taken_.clear();
}

}  // namespace feroce::process
