#include "sim/node.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace feroce::sim {

namespace {

// A turn that finds work without end still lets time pass.
constexpr Duration kTickMin = std::chrono::microseconds(1);
constexpr int kRunsPerTurn = 16;
constexpr std::uint64_t kIovaStride = std::uint64_t{1} << 36;

}  // namespace

Node::Node(const Parts& parts, const NodeConfig& config, std::uint32_t id, const Gid& address,
           std::uint64_t seed)
    : parts_(parts),
      config_(config),
      id_(id),
      address_(address),
      random_(seed),
      arena_(config.arena_bytes, kIovaStride * (id + 1)),
      memory_(mem::Limits{}, random_),
      port_(parts.port, address, id),
      far_copies_(parts.scheduler, arena_, seed ^ 0xfa7, [this] { wake(); }) {
    if (config.rings) port_.use_rings(random_);
    for (std::uint32_t shard = 0; shard < config.shards; ++shard) {
        device::Engine::Config engine = config.engine;
        engine.slot = static_cast<SlotNumber>(shard + 1);
        const auto& inbox = inboxes_.emplace_back(std::make_unique<Inbox>());
        engines_.push_back(std::make_unique<device::Engine>(
            engine, device::Engine::Parts{memory_, xrc_, port_, *this, random_, inbox.get()}));
    }
}

device::Engine& Node::engine_of(Qpn qpn) {
    const std::uint32_t slot = slot_of(qpn);
    ASSERT(slot >= 1 && slot <= engines_.size());
    return *engines_[slot - 1];
}

void Node::wake() {
    wake_at(now());
}

void Node::pause() {
    paused_ = true;
}

void Node::resume() {
    if (!paused_) return;
    paused_ = false;
    for (const FramePtr& frame : socket_) receive(frame);
    socket_.clear();
    wake();
}

void Node::deliver(const FramePtr& frame) {
    if (!paused_) return receive(frame);
    if (socket_.size() < config_.socket_frames) {
        socket_.push_back(frame);
    } else {
        parts_.trace.frame(now(), TraceEvent::Dropped, id_, *frame);
    }
}

void Node::receive(const FramePtr& frame) {
    parts_.trace.frame(now(), TraceEvent::Delivered, id_, *frame);
    if (frame->bytes.size() < wire::Bth::kSize) return;
    const device::Datagram datagram{
        .bytes = frame->bytes,
        .source = frame->address.source,
        .destination = frame->address.destination,
        .source_port = frame->address.source_port,
        .id_hint = config_.exact_hints ? frame->ipv4_id : std::uint16_t{0},
        .traffic_class = frame->traffic_class,
        .hop_limit = frame->hop_limit,
        .sealed = frame->sealed,
        .packets = frame->packets};
    // As a steering socket group does it: the slot in the QPN picks the shard, and what names none
    // goes to the first. Multicast is for all.
    const SlotNumber slot = slot_of(Qpn{load_be24(std::span(frame->bytes).subspan<5, 3>())});
    if (datagram.destination.is_multicast()) {
        for (auto& engine : engines_) engine->receive(now(), datagram);
    } else {
        const bool known = slot >= 1 && slot <= engines_.size();
        engines_[known ? slot - 1 : 0]->receive(now(), datagram);
    }
    wake_at(now() + config_.turn_delay);
}

void Node::wake_at(Instant when) {
    if (when >= next_turn_) return;
    next_turn_ = when;
    parts_.scheduler.at(when, [this, when] {
        if (next_turn_ == when) turn();
    });
}

void Node::Inbox::empty_into(Instant now, device::Engine& engine) {
    for (const auto& [token, good] : std::exchange(done_, {})) engine.copy_done(now, token, good);
}

void Node::end_copies(transport::QueuePair& qp) {
    transport::QpAttributes to;
    to.state = transport::QpState::Err;
    const transport::AttributeMask mask{static_cast<std::uint32_t>(transport::Attribute::State)};
    while (qp.delivers()) {
        if (qp.state() != to.state) ASSERT(engine_of(qp.qpn()).modify_qp(now(), qp, to, mask));
        end_deliveries();
    }
}

void Node::end_deliveries() {
    far_copies_.finish_all();
    for (std::size_t i = 0; i < engines_.size(); ++i) {
        inboxes_[i]->empty_into(now(), *engines_[i]);
        engines_[i]->run(now());
    }
}

Result<void> Node::deregister(LKey key) {
    const std::shared_ptr<mem::FarMemory> far = memory_.far_memory(key.raw);
    const Result<void> done = memory_.deregister_region(key);
    if (done && far != nullptr) far->close();
    return done;
}

bool Node::has_work() const {
    return std::any_of(engines_.begin(), engines_.end(),
                       [](const auto& engine) { return engine->has_work(); });
}

void Node::turn() {
    next_turn_ = kNever;
    if (paused_) return;
    for (std::size_t i = 0; i < engines_.size(); ++i) inboxes_[i]->empty_into(now(), *engines_[i]);
    int runs = 0;
    do {
        for (auto& engine : engines_) engine->run(now());
        if (application_ != nullptr) application_->on_turn(*this);
    } while (++runs < kRunsPerTurn && has_work());
    Instant next = has_work() ? now() : kNever;
    for (auto& engine : engines_) next = std::min(next, engine->next_wakeup());
    if (next != kNever) wake_at(std::max(next, now() + kTickMin));
}

void Node::on_qp_event(transport::QueuePair& qp, transport::AsyncEventType type) {
    if (application_ != nullptr) application_->on_qp_event(*this, qp, type);
}

void Node::on_srq_event(transport::ReceiveQueue&, transport::AsyncEventType) {}

}  // namespace feroce::sim
