#include "process/linger_policy.hpp"

#include <algorithm>

namespace feroce::process {

void LingerPolicy::arrived(Instant now) {
    const bool close = now - last_arrival_ <= kLinger;
    // Lingering was worth it, and nobody minded.
    if (lingers(now)) pause_ = kPauseMin;
    last_arrival_ = now;
    until_ = close && now >= paused_until_ ? now + kLinger : Instant{};
}

void LingerPolicy::gave_way(Instant now, bool alone) {
    next_give_way_ = now + kGiveWayGap;
    if (alone) return;
    until_ = Instant{};
    paused_until_ = now + pause_;
    pause_ = std::min<Duration>(2 * pause_, kPauseMax);
}

}  // namespace feroce::process
