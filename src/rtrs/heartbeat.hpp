// Whether the other end of a path is alive. Every interval a heartbeat goes out unless one is still
// unanswered; whatever the peer sends counts as a sign of life. Time arrives as an argument;
// whoever owns this calls on_timer() at due().
#pragma once

#include "feroce/rtrs/options.hpp"

namespace feroce::rtrs {

class Heartbeat {
public:
    enum class Action { Nothing, Send, Dead };

    Heartbeat(HeartbeatOptions options, Instant now)
        : options_(options), due_(now + options.interval) {}

    Instant due() const { return due_; }
    Action on_timer(Instant now);
    void on_traffic() { missed_ = 0; }
    void on_ack(Instant now);
    // Round trip of the last answered heartbeat; zero before the first.
    Duration latency() const { return latency_; }

private:
    HeartbeatOptions options_;
    Instant due_;
    Instant sent_{};
    bool unanswered_ = false;  // A heartbeat is under way, so sent_ is valid.
    unsigned missed_ = 0;
    Duration latency_{};
};

}  // namespace feroce::rtrs
