// Two engines with a wire between them on which the test decides each packet's fate.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/assert.hpp"
#include "device/completion_queue.hpp"
#include "sim/connect.hpp"
#include "sim/node.hpp"
#include "sim/workload/station.hpp"

namespace feroce::script {

// One direction of the wire.
class Wire final : public sim::FrameSink {
public:
    // What arrives in place of a packet: the same, another, or nothing.
    using Filter = std::function<sim::FramePtr(const sim::FramePtr&)>;
    // Later than others, or twice.
    enum class Fate : std::uint8_t { Arrives, IsLost, ComesTwice, ComesLate };
    using FateOf = std::function<Fate()>;

    Wire(sim::Scheduler& scheduler, Filter filter)
        : scheduler_(scheduler), filter_(std::move(filter)) {}

    void lead_to(sim::FrameSink& sink) { far_end_ = &sink; }
    void deliver(const sim::FramePtr& frame) override {
        const sim::FramePtr arrives = filter_(frame);
        if (arrives == nullptr) return;
        const Fate fate = fate_of_ == nullptr ? Fate::Arrives : fate_of_();
        if (fate == Fate::IsLost) return;
        if (fate != Fate::ComesLate) deliver_after(std::chrono::microseconds(5), arrives);
        // After what is sent next, and after answers to it.
        if (fate == Fate::ComesTwice) deliver_after(std::chrono::microseconds(8), arrives);
        if (fate == Fate::ComesLate) deliver_after(std::chrono::microseconds(17), arrives);
    }
    void set_fates(FateOf fate_of) { fate_of_ = std::move(fate_of); }

private:
    void deliver_after(Duration delay, const sim::FramePtr& frame) {
        scheduler_.after(delay, [this, frame] { far_end_->deliver(frame); });
    }

    FateOf fate_of_;
    sim::Scheduler& scheduler_;
    Filter filter_;
    sim::FrameSink* far_end_ = nullptr;
};

// One node with a protection domain, a completion queue and one region for everything.
struct Party {
    Party(const sim::Node::Parts& parts, const device::Engine::Config& engine, std::uint32_t id)
        : cq(1024, nullptr, nullptr),
          node(parts, {.arena_bytes = 1 << 16, .engine = engine}, id,
               Gid::from_v4(0x0a00'0001 + id), 7 + id) {
        pd = *node.memory().alloc_pd();
        region = node.arena().allocate(32768);
        using mem::Access;
        keys = sim::register_range(
            node, pd, region,
            Access::LocalWrite | Access::RemoteWrite | Access::RemoteRead | Access::RemoteAtomic);
    }

    std::uint64_t iova(std::uint64_t offset) { return node.arena().iova(region.offset + offset); }
    ByteSpan bytes(std::uint64_t offset, std::uint64_t length) {
        return node.arena().bytes({region.offset + offset, length});
    }
    mem::Sge sge(std::uint64_t offset, std::uint32_t length) {
        return {iova(offset), length, keys.lkey};
    }
    std::vector<transport::Completion> poll() {
        std::vector<transport::Completion> polled(64);
        polled.resize(cq.poll(polled));
        return polled;
    }
    transport::QueuePair& create_qp() {
        transport::QpInit init;
        init.pd = pd;
        init.send_cq = init.receive_cq = &cq;
        init.capabilities = {.send_wr_max = 32, .receive_wr_max = 32};
        qps.push_back(*node.engine(0).create_qp(init));
        return *qps.back();
    }
    void destroy_qp(transport::QueuePair& qp) {
        cq.purge(qp.qpn());
        std::erase(qps, &qp);
        node.engine(0).destroy_qp(qp);
    }

    device::CompletionQueue cq;  // Outlives the engine.
    sim::Node node;
    PdId pd;
    sim::Range region;
    mem::RegionKeys keys;
    std::vector<transport::QueuePair*> qps;
};

// Engines are costly to make and are kept; each exchange gets fresh queue pairs.
class TwoNodes {
public:
    explicit TwoNodes(const Wire::Filter& filter, const device::Engine::Config& engine = {})
        : TwoNodes(filter, engine, engine) {}
    TwoNodes(const Wire::Filter& filter, const device::Engine::Config& engine_a,
             const device::Engine::Config& engine_b)
        : to_b_(scheduler, filter),
          to_a_(scheduler, filter),
          a({scheduler, trace_, {scheduler, trace_, to_b_, groups_}}, engine_a, 0),
          b({scheduler, trace_, {scheduler, trace_, to_a_, groups_}}, engine_b, 1) {
        to_b_.lead_to(b.node);
        to_a_.lead_to(a.node);
        scheduler.after_each([this] {
            for (Party* party : {&a, &b})
                for (const transport::QueuePair* qp : party->qps)
                    ASSERT(qp->machine().check_invariants() == nullptr);
        });
    }

    // Asked once for each packet, of either side.
    void set_fates(const Wire::FateOf& fate_of) {
        to_a_.set_fates(fate_of);
        to_b_.set_fates(fate_of);
    }

private:
    sim::Trace trace_;
    sim::Switch groups_;

public:
    sim::Scheduler scheduler;

private:
    Wire to_b_;
    Wire to_a_;

public:
    Party a;
    Party b;
};

}  // namespace feroce::script
