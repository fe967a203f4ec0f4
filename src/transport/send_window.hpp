// SendWindow: how much may be on its way to one destination, shared by all queue pairs that go
// there. Wire-neutral congestion control: grows while round trips stay short, shrinks on loss, on
// long round trips and on congestion marks. Counts READ responses asked for as well as requests
// sent.
//
// A round trip is long when even the shortest of one round is: a queue delays every packet, a
// sleeping process only some. How long is too long is learned from losses; until one happens, a
// long round trip is more likely a busy machine than a full queue, and nothing below
// `initial_bytes` is taken away for it.
#pragma once

#include <cstdint>

#include "base/time.hpp"

namespace feroce::transport {

class SendWindow {
public:
    struct Limits {
        // A default Debian receive buffer is 212,992 bytes and holds about half of that in payload.
        std::uint32_t initial_bytes = 64 * 1024;
        std::uint32_t bytes_min = 4096;
        std::uint32_t bytes_max = 2 * 1024 * 1024;
        // By a ring, always: so much fits one, with the last wide packet that begins within it.
        std::uint32_t ring_bytes = 448 * 1024;
        // Beyond bytes_max only as far as the path needs it: twice what is on its way when no queue
        // is, paced. Enough for 1 Gb/s and a round trip of 200 ms, or 10 Gb/s and 20 ms.
        std::uint32_t long_path_bytes_max = 32 * 1024 * 1024;
    };

    SendWindow() : SendWindow(Limits{}) {}
    explicit SendWindow(const Limits& limits);

    // Packets go by memory. A late answer means that the peer does not run: no reason to send less.
    void set_by_ring(bool by_ring) { by_ring_ = by_ring; }
    bool is_by_ring() const { return by_ring_; }

    // Several queue pairs send by it, in turns. Then the last packet of a turn asks for an
    // acknowledgement: what it leaves in flight must not wait for the next turn.
    void set_shared(bool shared) { shared_ = shared; }
    bool is_shared() const { return shared_; }

    bool may_send(Instant now) const;                          // At least one more packet.
    bool closes_with(Instant now, std::uint32_t bytes) const;  // No more after so much.
    // The same, for what is answered by the peer's packets. In vain, nobody runs ahead until the
    // window has opened again.
    bool may_ask(Instant now);
    // By a ring the peer may have read what it does not acknowledge yet, because its memory takes a
    // while (ADR 27). Then messages go on, as long as no more is unread than a ring has room for.
    bool may_run_ahead() const {
        return by_ring_ && !asked_in_vain_ && in_flight_ < limits_.bytes_max;
    }
    bool may_run_ahead(std::uint64_t unread) const {
        return may_run_ahead() && unread < limits_.ring_bytes;
    }
    // When may_send can turn true by itself (pacing); kNever if only an acknowledgement helps.
    Instant blocked_until(Instant now) const;
    std::uint32_t available() const;  // Bytes that fit now.
    std::uint32_t size() const;
    std::uint32_t in_flight() const { return in_flight_; }
    Duration smoothed_rtt() const { return smoothed_rtt_; }
    bool is_far() const;  // The path is long: bursts of the whole window would fill a queue.

    void on_sent(Instant now, std::uint32_t bytes);
    void on_acked(Instant now, std::uint32_t bytes);  // Left the network: acknowledged or answered.
    void on_forgotten(
        std::uint32_t bytes);  // Will be sent again, or never: no verdict on the path.
    void adopt(std::uint32_t bytes) { in_flight_ += bytes; }  // Sent by another path.
    void on_rtt(Instant now, Duration sample);
    void on_loss(Instant now);  // A sequence NAK or a timeout: all is sent again.
    // Only what is lost is sent again: so many bytes.
    void on_repaired_loss(Instant now, std::uint32_t bytes);
    void on_congestion_mark(Instant now);  // ECN echo (CNP).

private:
    void take_off(std::uint32_t bytes);
    void note_base(Instant now, Duration sample);
    void end_round(Instant now);
    void decrease(Instant now, double factor, double floor_bytes);
    void learn_target(Instant now, Duration queueing);
    void note_rate(Instant now);
    void note_path();
    double growth_step() const;
    double pipe_bytes() const;
    bool is_pacing(Instant now) const;
    Instant paced_until(Instant now, std::uint32_t bytes) const;  // After so much.
    Duration target_delay() const;
    Duration queueing_delay(Duration rtt) const;  // What is beyond the shortest round trip known.
    Duration burst() const;                       // How far ahead of its pace a sender may be.

    Limits limits_;
    bool by_ring_ = false;
    bool asked_in_vain_ = false;
    bool shared_ = false;
    double window_bytes_;
    double bytes_max_;       // Does not grow beyond.
    double full_bytes_ = 0;  // What was on its way when a queue overflowed last.
    std::uint32_t in_flight_ = 0;
    std::uint32_t packet_bytes_ = 1024;        // The largest sent recently: the unit of growth.
    bool in_slow_start_ = true;                // Doubling; ends at the first sign of congestion.
    std::uint32_t rounds_since_decrease_ = 0;  // Since the last decrease.

    // Round trips. All zero until the first sample.
    Duration smoothed_rtt_{0};
    Duration last_rtt_{0};
    Duration recent_rtt_{0};  // The shorter of the last two: ignores a single late answer.
    // Shortest of this period and of the one before, so that a path that became longer is noticed.
    Duration base_rtt_{0};
    Duration base_rtt_now_{0};
    Duration base_rtt_before_{0};
    Instant base_period_start_{};

    Duration round_rtt_min_{0};  // Zero: no sample in this round yet.
    Instant round_start_{};
    // What left the network in this round, and the most that did in a nanosecond of one round of
    // this period and of the one before.
    std::uint64_t round_bytes_ = 0;
    double rate_now_ = 0;
    double rate_before_ = 0;
    std::uint32_t rate_rounds_ = 0;   // Of this period.
    std::uint32_t level_rounds_ = 0;  // In which the rate did not grow by a quarter any more.
    double level_rate_ = 0;
    Duration queueing_max_{0};  // Seen in this period of base_rtt_ or the one before.
    Duration queueing_max_before_{0};
    std::uint64_t round_lost_ = 0;  // Bytes.
    double loss_rate_ = 0;          // Smoothed, of all that left the network.
    std::uint32_t rounds_since_congestion_ = 0;
    // Now and then half of the window is left unused for a round, so that the queue that all
    // senders keep together runs dry and the shortest round trip is seen.
    std::uint32_t rounds_since_drain_ = 0;
    bool drains_ = false;
    bool repairs_ = false;   // A loss costs one packet, not all that follow.
    Duration target_delay_;  // Queueing that is put up with.
    Instant target_learned_{};
    Instant last_decrease_{};
    bool has_decreased_ = false;
    Instant next_send_{};
};

}  // namespace feroce::transport
