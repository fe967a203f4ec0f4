// RelayWatch: whether the process that relays for a guest still runs. One that is stopped (Ctrl-Z,
// a debugger) keeps its connection, so the guest says a word now and then and looks whether it was
// read. Pure: time and what was read come in, what to do goes out.
#pragma once

#include <algorithm>
#include <chrono>

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

    // `unread`: something that was said is not read yet. After Leave comes changed() or failed().
    Step step(Instant now, bool unread) {
        if (now < due_) return Step::Wait;
        due_ = now + kGap;
        if (unread) return Step::Leave;
        pause_ = kFirstPause;
        return Step::Say;
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

private:
    Instant due_{};
    Duration pause_ = kFirstPause;
};

}  // namespace feroce::port
