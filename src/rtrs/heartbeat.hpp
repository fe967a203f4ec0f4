// Whether the other end of a path is alive. Every interval a heartbeat goes out unless one is still
// unanswered; whatever the peer sends counts as a sign of life. Time arrives as an argument; the
// owner calls on_timer() at due().
//
// Between peers of ours the acknowledgement of the peer's device counts as well: a program that
// blocks for a while, in a handler for instance, answers no heartbeat, but there is nothing wrong
// with the path, and another one would lead to the same program. While a heartbeat is unanswered
// the device alone is asked (Probe), so that heartbeats do not use up the receives of such a peer.
// The kernel is held to its answers.
#pragma once

#include "feroce/rtrs/options.hpp"

namespace feroce::rtrs {

class Heartbeat {
public:
    enum class Action { Nothing, Send, Probe, Dead };
    enum class Peer { Kernel, Ours };

    Heartbeat(HeartbeatOptions options, Instant now, Peer peer)
        : options_(options), due_(now + options.interval), peer_(peer) {}

    Instant due() const { return due_; }
    Action on_timer(Instant now);
    void on_traffic() { missed_ = 0; }
    void on_ack(Instant now);
    // The peer's device has acknowledged something.
    void on_acknowledged() {
        if (peer_ == Peer::Ours) on_traffic();
    }
    // Round trip of the last answered heartbeat; zero before the first.
    Duration latency() const { return latency_; }

private:
    HeartbeatOptions options_;
    Instant due_;
    Peer peer_;
    Instant sent_{};
    bool unanswered_ = false;  // A heartbeat is in flight, so sent_ is valid.
    unsigned missed_ = 0;
    Duration latency_{};
};

}  // namespace feroce::rtrs
