// Link: one direction of a cable, from a queue in front of it to the far end. Has a speed, a
// length, a queue that drops at its tail, and faults. Two links make a cable; each can fail alone.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "base/time.hpp"
#include "sim/frame.hpp"
#include "sim/scheduler.hpp"
#include "sim/trace.hpp"

namespace feroce::sim {

// Probabilities per frame.
struct Faults {
    double loss = 0;
    double duplicate = 0;
    double reorder = 0;
    double corrupt = 0;  // 1 to 64 flipped bits.
    // A reordered frame is late by a random part of this.
    Duration reorder_delay = std::chrono::microseconds(200);
};

struct LinkConfig {
    std::uint64_t bits_per_second = 10'000'000'000;
    Duration delay = std::chrono::microseconds(2);
    std::uint32_t queue_packets = 1024;
    std::uint32_t mark_packets = 0;  // Queue length from which ECN is marked; 0: never.
    Faults faults;
    bool (*swallows)(const Frame&) = nullptr;  // Packets that never arrive.
};

struct LinkStats {
    std::uint64_t frames = 0;  // That reached the far end.
    std::uint64_t bytes = 0;
    std::uint64_t lost = 0;  // By faults and partitions.
    std::uint64_t overflowed = 0;
    std::uint32_t queue_peak = 0;
};

class Link final : public FrameSink {
public:
    // What a world lends its links. Outlives them.
    struct Parts {
        Scheduler& scheduler;
        Trace& trace;
        RandomSource& random;
    };

    Link(const Parts& parts, const LinkConfig& config, std::uint32_t id, FrameSink& far_end);

    void deliver(const FramePtr& frame) override;

    void set_faults(const Faults& faults) { config_.faults = faults; }
    void set_blocked(bool blocked) { blocked_ = blocked; }
    // A network that keeps what it is given and delivers it when all have stopped waiting for it.
    void set_held(bool held);
    const LinkConfig& config() const { return config_; }
    const LinkStats& stats() const { return stats_; }

private:
    void drop(const FramePtr& frame, std::uint64_t& counter);
    bool chance(double probability);
    FramePtr corrupted(const FramePtr& frame);
    FramePtr marked(const FramePtr& frame) const;
    void enqueue(const FramePtr& frame);
    Duration time_on_wire(const Frame& frame) const;

    Parts parts_;
    LinkConfig config_;
    std::uint32_t id_;
    FrameSink& far_end_;
    bool blocked_ = false;
    bool held_ = false;
    std::vector<FramePtr> holding_;  // In the order they came.
    Instant busy_until_{};
    std::uint32_t queued_ = 0;  // Frames not yet fully on the wire.
    LinkStats stats_;
};

}  // namespace feroce::sim
