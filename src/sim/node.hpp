// Node: a simulated machine: memory, a port, one engine per shard, and an application that is
// called after each turn of the engines, as a polling program would run. Frames and timers wake it;
// while paused it does nothing and its socket buffer fills.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "device/engine.hpp"
#include "sim/arena.hpp"
#include "sim/far_copies.hpp"
#include "sim/frame.hpp"
#include "sim/port.hpp"
#include "sim/scheduler.hpp"
#include "sim/trace.hpp"

namespace feroce::sim {

class Node;

class Application {
public:
    virtual ~Application() = default;
    // The engines have run: completions may be there, work may be posted.
    virtual void on_turn(Node& node) = 0;
    virtual void on_qp_event(Node& node, transport::QueuePair& qp,
                             transport::AsyncEventType type) = 0;
};

struct NodeConfig {
    std::uint32_t shards = 1;
    std::uint64_t arena_bytes = 1 << 20;
    // Between the arrival of a frame and the turn that looks at it: frames come in batches.
    Duration turn_delay = std::chrono::microseconds(1);
    std::uint32_t socket_frames = 1024;  // Held while paused; more are dropped.
    bool exact_hints = true;             // Else the id hint is always 0 and ids must be solved for.
    bool rings = false;                  // Packets may go by memory: SimPort::use_rings().
    device::Engine::Config engine;
};

class Node final : public FrameSink, public device::EventListener {
public:
    struct Parts {
        Scheduler& scheduler;
        Trace& trace;
        SimPort::Parts port;
    };

    Node(const Parts& parts, const NodeConfig& config, std::uint32_t id, const Gid& address,
         std::uint64_t seed);

    std::uint32_t id() const { return id_; }
    const Gid& address() const { return address_; }
    Arena& arena() { return arena_; }
    mem::Memory& memory() { return memory_; }
    device::XrcDomains& xrc() { return xrc_; }
    std::uint32_t shards() const { return static_cast<std::uint32_t>(engines_.size()); }
    device::Engine& engine(std::uint32_t shard) { return *engines_[shard]; }
    device::Engine& engine_of(Qpn qpn);
    Instant now() const { return parts_.scheduler.now(); }

    // Far memory: its copies, and regions of either kind.
    FarCopies& far_copies() { return far_copies_; }
    Result<void> deregister(LKey key);
    // As ibv_modify_qp and ibv_destroy_qp do it: what is on its way into far memory is waited for
    // in ERR, where nothing new is begun. Completions are there then.
    void end_copies(transport::QueuePair& qp);
    void end_deliveries();  // As ibv_destroy_srq does it.

    void set_application(Application* application) { application_ = application; }
    void wake();  // A turn soon: after posts from outside on_turn.
    void pause();
    void resume();
    bool paused() const { return paused_; }

    // FrameSink
    void deliver(const FramePtr& frame) override;
    // device::EventListener
    void on_qp_event(transport::QueuePair& qp, transport::AsyncEventType type) override;
    void on_srq_event(transport::ReceiveQueue& srq, transport::AsyncEventType type) override;

private:
    // What a shard hears of copies: it looks at its next turn.
    class Inbox final : public mem::CopyListener {
    public:
        void copy_done(mem::CopyToken token, bool good) override { done_.push_back({token, good}); }
        void empty_into(Instant now, device::Engine& engine);

    private:
        std::vector<std::pair<mem::CopyToken, bool>> done_;
    };

    void receive(const FramePtr& frame);
    void wake_at(Instant when);
    void turn();
    bool has_work() const;

    Parts parts_;
    NodeConfig config_;
    std::uint32_t id_;
    Gid address_;
    Prng random_;
    Arena arena_;
    mem::Memory memory_;
    device::XrcDomains xrc_;
    SimPort port_;
    FarCopies far_copies_;
    std::vector<std::unique_ptr<Inbox>> inboxes_;  // One a shard.
    std::vector<std::unique_ptr<device::Engine>> engines_;
    Application* application_ = nullptr;
    Instant next_turn_ = kNever;   // Turns scheduled for another time are stale.
    std::deque<FramePtr> socket_;  // Filled only while paused.
    bool paused_ = false;
};

}  // namespace feroce::sim
