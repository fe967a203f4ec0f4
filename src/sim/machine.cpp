#include "sim/machine.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "sim/machine_host.hpp"

namespace feroce::sim {

struct Machine::Strand {
    Strand(Kind k, std::function<void()> body) : fiber(std::move(body)), kind(k) {}

    Fiber fiber;
    Kind kind;
    std::uint64_t waits = 0;  // Which wait it is in: alarms of others are stale.
    bool waiting = true;      // At birth for its first run.
    bool woken = false;       // Rather than timed out.
    bool listening = false;   // Waits for news.
    Instant wakes = kNever;   // The earliest alarm of this wait by wake().
    std::uint64_t news_seen = 0;
};

namespace {

constexpr int kJoinRunsMax = 1000;

}  // namespace

Machine::Machine(const Parts& parts, const MachineConfig& config, std::uint32_t id,
                 const Gid& address, std::uint64_t seed)
    : parts_(parts),
      rails_(parts.uplink),
      config_(config),
      id_(id),
      address_(address),
      addresses_{address},
      random_(seed),
      memory_(id, config.memory_bytes) {}

Machine::~Machine() {
    drop_ended();
    ASSERT(strands_.empty() && ports_.empty());
}

std::shared_ptr<Machine::Strand> Machine::spawn(Kind kind, std::function<void()> body) {
    drop_ended();
    strands_.push_back(std::make_shared<Strand>(kind, std::move(body)));
    wake(strands_.back(), now());
    return strands_.back();
}

bool Machine::ended(const Strand& strand) {
    return strand.fiber.ended();
}

void Machine::drop_ended() {
    std::erase_if(strands_, [](const auto& strand) { return strand->fiber.ended(); });
}

void Machine::join(Strand& strand) {
    const auto found = std::find_if(strands_.begin(), strands_.end(),
                                    [&](const auto& other) { return other.get() == &strand; });
    if (found == strands_.end()) return;
    const std::shared_ptr<Strand> kept = *found;
    for (int i = 0; i < kJoinRunsMax && !kept->fiber.ended(); ++i) run(kept);
    ASSERT(kept->fiber.ended());
}

void Machine::cancel_programs() {
    cancelled_ = true;
    const std::list<std::shared_ptr<Strand>> all = strands_;
    for (const std::shared_ptr<Strand>& strand : all)
        if (strand->kind == Kind::Program && !strand->fiber.ended()) join(*strand);
    cancelled_ = false;
}

std::shared_ptr<Machine::Strand> Machine::running() const {
    const auto found = std::find_if(strands_.begin(), strands_.end(), [](const auto& strand) {
        return &strand->fiber == Fiber::current();
    });
    ASSERT(found != strands_.end());  // Only fibers of this machine wait on it.
    return *found;
}

bool Machine::wait(const std::shared_ptr<Strand>& strand, Instant until) {
    ++strand->waits;
    strand->waiting = true;
    strand->woken = false;
    strand->wakes = kNever;
    if (until != kNever) schedule(strand, until, false);
    Fiber::suspend();
    return strand->woken;
}

void Machine::wake(const std::shared_ptr<Strand>& strand, Instant when) {
    if (!strand->waiting || strand->wakes <= when) return;
    strand->wakes = when;
    schedule(strand, when, true);
}

void Machine::schedule(const std::shared_ptr<Strand>& strand, Instant when, bool woken) {
    parts_.scheduler.at(when, [this, strand, woken, wait = strand->waits] {
        if (!strand->waiting || strand->waits != wait) return;
        strand->woken = woken;
        if (paused_)
            held_.push_back(strand);
        else
            run(strand);
    });
}

void Machine::run(const std::shared_ptr<Strand>& strand) {
    strand->waiting = false;
    around_([&] { strand->fiber.resume(); });
}

void Machine::sleep_until(Instant until) {
    wait(running(), until);
}

void Machine::wait_for_news(Instant until) {
    const std::shared_ptr<Strand> self = running();
    if (self->news_seen == news_) {
        self->listening = true;
        wait(self, until);
        self->listening = false;
    }
    self->news_seen = news_;
}

void Machine::make_news() {
    ++news_;
    for (const std::shared_ptr<Strand>& strand : strands_)
        if (strand->listening) wake(strand, now() + config_.wake_delay);
}

void Machine::resume() {
    paused_ = false;
    std::vector<std::shared_ptr<Strand>> due;
    due.swap(held_);
    for (const std::shared_ptr<Strand>& strand : due)
        if (strand->waiting) run(strand);
}

void Machine::set_addresses(std::vector<Gid> addresses) {
    addresses_ = std::move(addresses);
    for (MachinePort* port : ports_) port->on_interfaces_changed();
}

void Machine::Rails::deliver(const FramePtr& frame) {
    const auto own = std::find(addresses_.begin(), addresses_.end(), frame->address.source);
    if (own == addresses_.end()) return first_.deliver(frame);
    uplinks_[static_cast<std::size_t>(own - addresses_.begin())]->deliver(frame);
}

Gid Machine::source_for(const Gid& destination) const {
    const auto neighbour = [&](const Gid& own) {
        return std::equal(own.raw.begin(), own.raw.end() - 1, destination.raw.begin());
    };
    const auto& rails = rails_.addresses();
    const auto rail = std::find_if(rails.begin(), rails.end(), neighbour);
    return rail == rails.end() ? addresses_.front() : *rail;
}

void Machine::attach(MachinePort& port) {
    ports_.push_back(&port);
    std::sort(ports_.begin(), ports_.end(),
              [](const auto* a, const auto* b) { return a->slot() < b->slot(); });
}

void Machine::detach(MachinePort& port) {
    std::erase(ports_, &port);
}

SlotNumber Machine::free_slot() const {
    SlotNumber slot = 1;
    for (const MachinePort* port : ports_)
        if (port->slot() == slot) ++slot;
    return slot;
}

void Machine::deliver(const FramePtr& frame) {
    if (ports_.empty() || frame->bytes.size() < wire::Bth::kSize) {
        parts_.trace.frame(now(), TraceEvent::Dropped, id_, *frame);
        return;
    }
    // As a steering socket group does it: the slot in the QPN picks the port, and what names none
    // goes to the first. Multicast is for all.
    if (frame->address.destination.is_multicast()) {
        for (MachinePort* port : ports_) port->deliver(frame);
        return;
    }
    const SlotNumber slot = slot_of(Qpn{load_be24(std::span(frame->bytes).subspan<5, 3>())});
    const auto named = std::find_if(ports_.begin(), ports_.end(),
                                    [&](const auto* port) { return port->slot() == slot; });
    (named != ports_.end() ? *named : ports_.front())->deliver(frame);
}

void Machine::Bell::ring(Duration delay) {
    rung_ = true;
    if (sleeper_) machine_.wake(sleeper_, machine_.now() + delay);
}

bool Machine::Bell::wait(Instant until) {
    if (!rung_ && until > machine_.now()) {
        sleeper_ = machine_.running();
        machine_.wait(sleeper_, until);
        sleeper_.reset();
    }
    const bool rang = rung_;
    rung_ = false;
    return rang;
}

}  // namespace feroce::sim
