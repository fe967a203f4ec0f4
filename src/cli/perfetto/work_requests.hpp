// WorkRequests: the work requests of one queue pair as its packets show them, each from its first
// packet to the answer that completes it. What was posted before its first packet was sent, and
// polled after the answer came, no capture knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "base/psn.hpp"
#include "cli/perfetto/trace_file.hpp"
#include "wire/packet.hpp"

namespace feroce::cli {

class WorkRequests {
public:
    // `next_id` is that of all queue pairs of a trace.
    WorkRequests(TraceFile& file, TracePlace place, std::uint64_t& next_id)
        : file_(file), place_(place), next_id_(next_id) {}

    // Packets of the two directions, in the order of the capture.
    void request(double us, const wire::Packet& packet);
    void answer(double us, const wire::Packet& packet);
    void finish(double us);  // No more packets.

    std::size_t count() const { return count_; }

    // So many may wait for an answer; of a capture of one direction all would.
    static constexpr std::size_t kOpenMax = 4'096;

private:
    struct Open {
        std::uint64_t id = 0;
        std::string name;
        Psn first;
        Psn last;                     // As far as it was sent.
        bool whole = false;           // Its last packet was sent.
        bool reads = false;           // The response completes it, and no acknowledgement.
        bool is_acknowledged = true;  // False: completes when it is sent.
        std::uint64_t bytes = 0;
        std::uint32_t packets = 0;
        std::uint32_t resent = 0;
    };

    void begin(double us, const wire::Packet& packet);
    void again(double us, Psn psn);
    void end_first(double us, const std::string& outcome);
    void end_before(double us, Psn psn);
    void end_refused(double us, const wire::Packet& packet);

    TraceFile& file_;
    TracePlace place_;
    std::uint64_t& next_id_;
    std::deque<Open> open_;
    bool began_ = false;
    Psn next_;  // Behind the last packet that was sent.
    std::size_t count_ = 0;
};

}  // namespace feroce::cli
