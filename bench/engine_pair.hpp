// Two engines joined by nothing but two buffers: no simulated time, no copies but the port's own.
// For measuring what the engine costs, and for showing that it allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/random.hpp"
#include "device/completion_queue.hpp"
#include "device/engine.hpp"

namespace feroce::bench {

// Seals runs as a real port does and keeps the packets until they are taken.
class BufferPort final : public device::Port {
public:
    struct Packet {
        std::size_t offset = 0;
        std::size_t size = 0;
        std::uint16_t id = 0;
        Gid source;
        Gid destination;
        std::uint16_t source_port = 0;
    };

    BufferPort();

    void transmit(std::span<const transport::TransmitRun> runs) override;
    bool join_group(const Gid&) override { return true; }
    void leave_group(const Gid&) override {}

    std::size_t size() const { return packets_.size(); }
    void hand_to(Instant now, device::Engine& engine);  // And forgets them.
    void forget();

private:
    std::vector<std::byte> bytes_;  // Capacity fixed: a benchmark's batch must fit.
    std::size_t used_ = 0;
    std::vector<Packet> packets_;
};

// One engine with all it needs.
class Party : private device::EventListener {
public:
    Party(const Gid& address, std::uint64_t seed);

    device::Engine& engine() { return *engine_; }
    BufferPort& port() { return port_; }
    const Gid& address() const { return address_; }
    std::uint64_t memory_address() const { return reinterpret_cast<std::uint64_t>(words_.data()); }
    const mem::RegionKeys& keys() const { return keys_; }
    transport::QueuePair& create_qp();
    std::uint32_t poll();  // Expects success; returns how many.

    static constexpr std::size_t kMemoryBytes = 1 << 20;

private:
    void on_qp_event(transport::QueuePair&, transport::AsyncEventType) override {}
    void on_srq_event(transport::ReceiveQueue&, transport::AsyncEventType) override {}

    Gid address_;
    Prng random_;
    std::vector<std::uint64_t> words_;
    mem::Memory memory_;
    device::XrcDomains xrc_;
    BufferPort port_;
    device::CompletionQueue cq_;
    PdId pd_;
    mem::RegionKeys keys_;
    std::unique_ptr<device::Engine> engine_;
    std::array<transport::Completion, 256> polled_;
};

class EnginePair {
public:
    static constexpr std::uint32_t kQueueDepth = 16;  // Operations under way per queue pair.

    // `burst` operations in a row go to one queue pair, then comes the next.
    explicit EnginePair(std::uint32_t qps, std::uint32_t burst = 1);

    Party& a() { return a_; }
    Party& b() { return b_; }

    // One operation from `a`; receives are posted as needed.
    void post(transport::SendOp op, std::uint32_t bytes);
    void run_a() { a_.engine().run(now_); }
    void run_b() { b_.engine().run(now_); }
    void carry_to_b() { a_.port().hand_to(now_, b_.engine()); }
    void carry_to_a() { b_.port().hand_to(now_, a_.engine()); }
    // Carries packets both ways until nothing moves, and polls; returns a's completions.
    std::uint32_t settle();

private:
    Party a_;
    Party b_;
    Instant now_{std::chrono::seconds(1)};
    std::vector<std::pair<transport::QueuePair*, transport::QueuePair*>> qps_;
    std::size_t burst_;
    std::size_t posted_ = 0;
};

}  // namespace feroce::bench
