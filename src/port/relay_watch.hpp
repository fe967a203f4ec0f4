// RelayWatch: whether the process that relays for a guest still runs. The end of its connection
// tells a guest of its death, but one that is stopped (Ctrl-Z, a debugger) keeps its connection. So
// a guest that sends or receives says a word now and then and looks whether it was read. One
// without traffic misses nothing: it says no more once its last word is read, and needs not wake
// up. Pure: time and what was seen come in, what to do goes out.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/time.hpp"

namespace feroce::port {

class RelayWatch {
public:
    // A word that is unread after this long: its reader is stopped. Well within what a peer's
    // retries last by usual settings (0.5 s at the least), and longer than a busy machine makes a
    // thread wait. To leave a relay that is only slow costs some packets.
    static constexpr Duration kGap = std::chrono::milliseconds(200);
    // After nobody else could be found, who may be stopped as well; doubles.
    static constexpr Duration kFirstPause = std::chrono::milliseconds(400);
    static constexpr Duration kLastPause = std::chrono::seconds(5);

    enum class Step { Wait, Say, Leave };

    // `unread`: something that was said is not read yet. `traffic`: something was sent or received
    // since the last step. After Leave comes changed() or failed().
    Step step(Instant now, bool unread, bool traffic) {
        traffic_ |= traffic;
        if (rests()) {
            if (!traffic_) return Step::Wait;
        } else if (now < due_) {
            return Step::Wait;
        } else if (unread) {
            due_ = now + kGap;
            return Step::Leave;
        }
        pause_ = kFirstPause;
        due_ = traffic_ ? now + kGap : kNever;
        return std::exchange(traffic_, false) ? Step::Say : Step::Wait;
    }
    void changed(Instant now) {  // There is a new relay.
        due_ = now + kGap;
        pause_ = kFirstPause;
    }
    void failed(Instant now) {
        due_ = now + pause_;
        pause_ = std::min(2 * pause_, kLastPause);
    }
    Instant due() const { return due_; }
    bool rests() const { return due_ == kNever; }  // Until there is traffic.

private:
    Instant due_ = kNever;
    bool traffic_ = false;  // Since the last word.
    Duration pause_ = kFirstPause;
};

}  // namespace feroce::port
