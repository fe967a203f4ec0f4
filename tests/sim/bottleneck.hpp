// Bottleneck: flows between nodes that share one line, with a length, a speed, a short queue and
// losses. Times are virtual: what it measures does not depend on the machine.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/connect.hpp"
#include "sim/workload/station.hpp"
#include "sim/world.hpp"

namespace feroce::sim {

inline constexpr std::uint32_t kFlowMessageBytes = 64 * 1024;
inline constexpr double kLineBitsPerSecond = 1e9;

struct LineOptions {
    double loss = 0;     // Of the packets that carry data, by chance.
    double reorder = 0;  // Likewise; such a packet is late by up to a fifth of a round trip.
    Duration delay = std::chrono::microseconds(20);  // Of data; answers take none.
    bool loses_answers = false;                      // As often as data.
    bool keeps = false;  // Both ends keep what follows a gap, else they go back.
    bool lists = true;   // And tell each other of all gaps, else NAKs tell of one at a time.
    transport::SendOp op = transport::SendOp::Write;
    std::uint32_t depth = 4;  // Messages in flight.
    std::uint32_t message_bytes = kFlowMessageBytes;
    std::uint32_t path_mtu = 1024;
    std::uint8_t reads = 16;           // That may be outstanding.
    std::uint32_t queue_packets = 64;  // In front of the line.
    bool one_source = false;           // All flows begin at one node, and share its window.
    Duration start{0};                 // Is forgotten. 0: enough for a few flows.
    Duration span{0};                  // Is measured. 0: likewise.
    std::uint8_t timeout = 0;  // Of the queue pairs, as IBTA has it. 0: one that suits the delay.
};

// Keeps messages in flight and counts what completes. Data goes from the source to the sink, but
// for READ, which the sink asks for.
class Flow {
public:
    Flow(Node& source, Node& sink, const LineOptions& line);
    void open(const ConnectOptions& options);
    void turn();
    Node& asker() { return asks_at_sink_ ? sink_ : source_; }
    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t failures() const { return failures_; }

private:
    struct End {
        Node& node;
        PdId pd;
        Range region;
        mem::RegionKeys keys;
        std::unique_ptr<device::CompletionQueue> cq;
        transport::QueuePair* qp = nullptr;
    };

    End make_end(Node& node) const;
    void post();
    void post_receive();

    Node& source_;
    Node& sink_;
    LineOptions line_;
    bool asks_at_sink_;
    End near_;  // Asks.
    End far_;
    std::uint64_t bytes_ = 0;
    std::uint64_t failures_ = 0;
};

class Bottleneck final : public Application {
public:
    Bottleneck(std::uint32_t flows, const LineOptions& line);
    // Bits per second of payload for each flow, once the start has been forgotten.
    std::vector<double> measure();
    const LinkStats& line() { return world_.downlink(0).stats(); }
    World& world() { return world_; }
    std::uint64_t timeouts() const { return timeouts_; }  // Of the sources, in that time.

    void on_turn(Node& node) override;
    void on_qp_event(Node&, transport::QueuePair&, transport::AsyncEventType) override {}

private:
    std::uint64_t timeouts_so_far();

    LineOptions options_;
    std::uint64_t timeouts_ = 0;
    std::vector<std::unique_ptr<Flow>> flows_;  // Outlive the engines: they own completion queues.
    std::vector<std::vector<Flow*>> turns_;  // By node: those to which something completes there.
    World world_;
};

// 1 when all get the same, 1/n when one gets all.
double jain(const std::vector<double>& rates);
double total(const std::vector<double>& rates);

}  // namespace feroce::sim
