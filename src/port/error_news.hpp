// ErrorNews: when a port's thread tells of peers that packets did not reach: soon, and not more
// often than ten times a second, however much the network says.
#pragma once

#include <atomic>
#include <chrono>

#include "base/time.hpp"

namespace feroce::port {

class ErrorNews {
public:
    // There is something to tell. Any thread; true if nobody knew.
    bool note() { return !waiting_.exchange(true); }
    // Of the thread that waits: until when at most, and whether it is time.
    Instant due() const { return waiting_.load() ? next_ : kNever; }
    bool take(Instant now) {
        if (now < due()) return false;
        waiting_.store(false);
        next_ = now + kGap;
        return true;
    }

private:
    static constexpr Duration kGap = std::chrono::milliseconds(100);

    std::atomic<bool> waiting_{false};  // The lock under which things are told orders the rest.
    Instant next_{};                    // The waiting thread's own.
};

}  // namespace feroce::port
