// RelayWatch: whether the process that relays for a guest still runs. The end of its connection
// tells a guest of its death, but one that is stopped (Ctrl-Z, a debugger) keeps its connection. So
// a guest that sends or receives says a word now and then and looks whether it was read. One
// without traffic says no more once its last word is read: it rests. While it has queue pairs, to
// which a peer may send, it looks now and then whether the system calls the relay stopped, which
// wakes nobody but itself; without any it needs not wake up. Pure: time and what was seen come in,
// what to do goes out.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/time.hpp"
#include "port/process_state.hpp"

namespace feroce::port {

class RelayWatch {
public:
    // A word that is unread after this long: its reader may be stopped. Well within what a peer's
    // retries last by usual settings (0.5 s at the least).
    static constexpr Duration kGap = std::chrono::milliseconds(200);
    // But while the system says that the reader runs, it waits for a core, and to leave it would
    // make it more work: only one that reads nothing for so long is left. It may be frozen with its
    // container, which does not show.
    static constexpr Duration kFrozen = std::chrono::seconds(3);
    // Of a guest that rests. A peer retries for 0.54 s at the least by usual settings, and an idle
    // process may wake up twice a second.
    static constexpr Duration kIdleGap = std::chrono::milliseconds(510);
    // The same with a connection manager: its peers retry for seconds, and its own questions wake
    // the guest as well.
    static constexpr Duration kManagedGap = std::chrono::milliseconds(1000);
    // After nobody else could be found, who may be stopped as well; doubles.
    static constexpr Duration kFirstPause = std::chrono::milliseconds(400);
    static constexpr Duration kLastPause = std::chrono::seconds(5);

    enum class Step { Wait, Say, Leave };

    // `unread`: something that was said is not read yet. `traffic`: something was sent or received
    // since the last step. `idle_gap`: between two looks while it rests; zero for none. `state`
    // gives that of the relay. After Leave comes changed() or failed().
    template <class StateOfRelay>
    Step step(Instant now, bool unread, bool traffic, Duration idle_gap,
              const StateOfRelay& state) {
        traffic_ |= traffic;
        if (rests_) {
            if (!traffic_) return rest(now, idle_gap, state);
        } else if (now < due_) {
            return Step::Wait;
        } else if (unread) {
            due_ = now + kGap;
            unread_since_ = std::min(unread_since_, now);
            const bool runs = state() == ProcessState::Running;
            return runs && now - unread_since_ < kFrozen ? Step::Wait : Step::Leave;
        }
        unread_since_ = kNever;
        pause_ = kFirstPause;
        rests_ = !traffic_;
        due_ = traffic_ ? now + kGap : next_look(now, idle_gap);
        return std::exchange(traffic_, false) ? Step::Say : Step::Wait;
    }
    void changed(Instant now) {  // There is a new relay.
        due_ = now + kGap;
        rests_ = false;
        unread_since_ = kNever;
        pause_ = kFirstPause;
    }
    void failed(Instant now) {
        due_ = now + pause_;
        pause_ = std::min(2 * pause_, kLastPause);
    }
    Instant due() const { return due_; }
    bool rests() const { return rests_; }  // Until there is traffic.

private:
    static Instant next_look(Instant now, Duration idle_gap) {
        return idle_gap == Duration::zero() ? kNever : now + idle_gap;
    }
    // What the system does not show (a frozen container, a relay in another pid namespace) could be
    // seen by words alone, which would wake the relay for every guest that rests.
    template <class StateOfRelay>
    Step rest(Instant now, Duration idle_gap, const StateOfRelay& state) {
        if (due_ == kNever || idle_gap == Duration::zero()) due_ = next_look(now, idle_gap);
        if (now < due_) return Step::Wait;
        due_ = now + idle_gap;
        if (state() == ProcessState::Stopped) return Step::Leave;
        pause_ = kFirstPause;
        return Step::Wait;
    }

    Instant due_ = kNever;
    bool rests_ = true;
    Instant unread_since_ = kNever;  // When a word was first found unread.
    bool traffic_ = false;           // Since the last word.
    Duration pause_ = kFirstPause;
};

}  // namespace feroce::port
