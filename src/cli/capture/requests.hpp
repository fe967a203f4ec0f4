// The requests of one direction of a reliable connection and their answers, as a capture shows
// them: how far they are acknowledged, what was sent again, what was refused. Pure: packets in the
// order of the capture come in, facts go out; words are made elsewhere. Memory is bounded.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/psn.hpp"
#include "base/time.hpp"
#include "wire/packet.hpp"

namespace feroce::cli {

// A message as its first packet announces it.
struct SeenRequest {
    Psn psn;
    wire::Verb verb = wire::Verb::Send;
    bool has_memory = false;  // The three below are valid.
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint64_t length = 0;
};

struct Refusal {
    wire::Syndrome syndrome;
    Psn psn;
    Duration time{};
    std::optional<SeenRequest> request;  // If its beginning is in the capture.
    std::uint32_t reads_open = 0;        // READs and atomics not answered then.
};

class SeenRequests {
public:
    // `mtu` is 0 if it is not known.
    void on_request(Duration time, const wire::Packet& packet, std::uint32_t mtu);
    void on_answer(Duration time, const wire::Packet& packet);

    bool any() const { return begun_; }
    Psn first() const { return first_; }
    Psn unacknowledged() const { return unacked_; }
    bool is_open() const { return begun_ && distance(unacked_, next_) > 0; }
    // Whether an answer with this PSN can belong to them.
    bool holds(Psn psn) const;

    // Facts of the whole capture.
    std::uint64_t packets = 0;
    std::uint64_t repeated = 0;           // Sent again.
    std::uint64_t repeated_answered = 0;  // Of these, whose acknowledgement was in the capture.
    std::uint64_t missing = 0;            // Left out by the PSNs.
    std::uint64_t answers = 0;
    std::uint64_t sequence_naks = 0;
    std::uint64_t rnr_naks = 0;
    std::optional<Refusal> refusal;  // The first.
    // What the responder expects, though it was never sent: before the first or after the last.
    std::optional<Psn> stray_expectation;
    bool stray_by_nak = false;
    bool progressed = false;  // Something was acknowledged.

    // Facts since the last progress.
    std::uint32_t rounds = 0;    // How often the oldest that is open was sent again.
    std::uint32_t rnr_row = 0;   // RNR NAKs.
    bool rnr_pending = false;    // Nothing was sent after the last of them.
    bool answered_open = false;  // A repeat of what was answered came, and nothing since.
    std::uint32_t rnr_wait_us = 0;
    Psn rnr_psn;
    Duration last_sent{};
    Duration last_rnr{};
    Duration longest_pause{};  // Between two rounds.

private:
    static constexpr std::size_t kOpenMax = 128;

    void begin(Psn psn);
    void on_new(const wire::Packet& packet, std::uint32_t mtu);
    void on_repeat(Duration time, Psn psn);
    void acknowledge(Psn next);
    void on_nak(Duration time, Psn psn, wire::Syndrome syndrome);
    std::optional<SeenRequest> request_at(Psn psn) const;
    std::uint32_t reads_open() const;

    bool begun_ = false;
    bool certain_ = true;  // next_ is known: no READ of unknown MTU was the last.
    Psn first_;
    Psn next_;
    Psn unacked_;
    std::deque<SeenRequest> open_;
};

}  // namespace feroce::cli
