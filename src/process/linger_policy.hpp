// LingerPolicy: whether a shard's thread that has taken packets looks for more before it sleeps. To
// wake a sleeping thread takes longer than everything else that a passive target does for a small
// request, so one whose peer asks again and again stays awake for a moment.
//
// Only where packets came close to each other, so that one message now and then costs nothing; not
// for long; and not where another thread wants the core: the thread gives way often, and if that
// takes long it does not linger for a while. Fed with events, no clock, as DrivePolicy.
#pragma once

#include <chrono>

#include "base/time.hpp"

namespace feroce::process {

class LingerPolicy {
public:
    // Packets this close belong to one conversation, and so long the next one is waited for.
    static constexpr Duration kLinger = std::chrono::microseconds(64);
    static constexpr Duration kGiveWayGap = std::chrono::microseconds(4);
    // How long the thread does not linger after another wanted its core.
    static constexpr Duration kPauseMin = std::chrono::milliseconds(10);
    static constexpr Duration kPauseMax = std::chrono::seconds(1);

    void arrived(Instant now);  // The thread took packets.
    // Rather look again than sleep.
    bool lingers(Instant now) const { return now < until_; }
    // Whether the thread must give way before it looks again.
    bool gives_way(Instant now) const { return now >= next_give_way_; }
    // It did; `alone`: no other thread wanted the core.
    void gave_way(Instant now, bool alone);

private:
    Instant last_arrival_{};
    Instant until_{};
    Instant next_give_way_{};
    Instant paused_until_{};
    Duration pause_ = kPauseMin;
};

}  // namespace feroce::process
