#include "process/shard.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "base/assert.hpp"
#include "base/rollback.hpp"
#include "base/shortage.hpp"
#include "mem/guard.hpp"

namespace feroce::process {
namespace {

// Runs of the engine that one call may do before it leaves the rest to the thread.
constexpr int kRunsMax = 16;
// Rounds of receiving and running that the thread does before others get a chance at the lock.
constexpr int kRoundsMax = 8;
// Turns without a sleep after which the thread looks around.
constexpr int kBusyTurnsMax = 64;
// Batches that take_arrived() takes at most: more datagrams of some size fit no receive buffer.
constexpr int kTakeMax = 256;
// When to do again what there was no memory for.
constexpr Duration kLookAgainAfter = std::chrono::milliseconds(50);

}  // namespace

Result<std::unique_ptr<Shard>> Shard::start(const Parts& parts) {
    std::unique_ptr<Shard> shard(new Shard(parts));
    Result<std::unique_ptr<host::HostPort>> port = parts.host.open_port();
    if (!port) return port.error();
    shard->port_ = std::move(*port);
    device::Engine::Config config;
    config.slot = shard->port_->slot();
    config.held_bytes_max = parts.held_bytes_max;
    shard->engine_ = std::make_unique<device::Engine>(
        config, device::Engine::Parts{.memory = parts.memory,
                                      .xrc = parts.xrc,
                                      .port = *shard->port_,
                                      .events = parts.events,
                                      .random = parts.host.random(),
                                      .copies = &shard->copies_});
    Result<std::unique_ptr<host::Task>> thread =
        parts.host.spawn([raw = shard.get()] { raw->body(); });
    if (!thread) return thread.error();
    shard->thread_ = std::move(*thread);
    return shard;
}

Shard::~Shard() {
    stop_.store(true);
    if (port_) port_->wake();
    thread_.reset();
}

Shard::Session::Session(Shard& shard, Work work) : shard_(shard), work_(work) {
    std::unique_lock held(shard_.lock_);
    // A receive needs the time only if it is flushed at once, and then not precisely.
    now_ = work_ == Work::Receives ? shard_.engine_->last_run() : shard_.parts_.host.now();
    if (work_ == Work::Mail) shard_.taker_ = Taker::Manager;
    // What the program posts reaches our thread before the program polls.
    if (work_ == Work::Posts) mem::guard_keep_fresh(now_);
    if (changes()) shard_.send_pending(now_);
    // What is in flight has a deadline. Without one, nobody waits for an answer.
    in_flight_ = shard_.engine_->next_wakeup() != kNever;
    held.release();
}

Shard::Session::~Session() {
    if (work_ == Work::Changes) shard_.port_->queue_pairs_changed(*shard_.engine_);
    if (work_ == Work::Posts) {
        shard_.policy_.posted(now_);
        // It will poll when it has posted all: what arrives meanwhile is its own.
        if (shard_.policy_.polls_soon()) shard_.note_poll();
    }
    if (changes() ||
        (work_ == Work::Posts && !shard_.policy_.gather(shard_.situation(now_), in_flight_))) {
        shard_.send_pending(now_);
        shard_.wake_if_late(now_);
    }
    shard_.taker_ = Taker::Program;
    shard_.lock_.unlock();
}

void Shard::send_pending(Instant now) {
    policy_.sent();
    for (int i = 0; i < kRunsMax && engine_->has_work(); ++i) engine_->run(now);
}

DrivePolicy::Situation Shard::situation(Instant now) const {
    return {now, armed(), thread_sleeps_until_.load(std::memory_order_relaxed)};
}

void Shard::wake_if_late(Instant now) {
    const Instant due = engine_->has_work() ? now : engine_->next_wakeup();
    if (policy_.needs_thread(situation(now), due)) wake_thread(due);
}

void Shard::wake_thread(Instant at) {
    thread_sleeps_until_.store(at, std::memory_order_relaxed);
    port_->wake();
}

void Shard::apply(DrivePolicy::Arming arming) {
    using Arming = DrivePolicy::Arming;
    if (arming == Arming::Keep) return;
    // seq_cst, with the look that follows: see copies_ended().
    armed_.store(arming == Arming::Arm);
    if (arming != Arming::Arm) return port_->disarm(arming == Arming::DisarmForLong);
    port_->arm();
    if (copies_.pending()) [[unlikely]]
        port_->wake();
}

// As an arrival, which wakes the thread only while the port is armed: if it is not, a program polls
// or the thread looks soon. To wake it for each copy beside a program that polls would make both
// drive in turns. The thread that arms looks for copies after that, and this one for the arming
// after its copy is in the inbox: all four are seq_cst, so that one of the two sees the other.
void Shard::copies_ended() {
    if (armed_.load()) port_->wake();
}

bool Shard::take_copies(Instant now) {
    if (!copies_.pending()) [[likely]]
        return false;
    copies_.empty_into(now, *engine_);
    return true;
}

bool Shard::receive(Instant now) {
    mem::guard_keep_fresh(now);
    bool copied = take_copies(now);
    const bool received = port_->poll(now, *engine_);
    copied |= take_copies(now);  // What they let us say leaves with what the packets do.
    if (received && engine_->has_work()) policy_.arrived(now);
    return received || copied;
}

DrivePolicy::Debt Shard::debt(Instant now, bool received, bool asks_for_acks) const {
    return {
        .due = received || policy_.has_gathered() || engine_->next_wakeup() <= now,
        .completions = engine_->holds_completions(),
        .only_acks = asks_for_acks && policy_.answers_expected() && engine_->owes_only_acks(now)};
}

void Shard::drive(device::CompletionQueue& cq) {
    note_poll();  // Also if the thread drives: it stops lingering then.
    if (!lock_.try_lock_to_poll()) return;
    bool give_way = false;
    {
        const std::lock_guard guard(lock_, std::adopt_lock);
        give_way = drive_locked(cq);
    }
    // The peer, or our thread, may wait for this very core.
    if (give_way) std::this_thread::yield();
}

bool Shard::drive_locked(device::CompletionQueue& cq) {
    const Instant now = parts_.host.now();
    policy_.poll_begins(now);
    const bool received = receive(now);
    const DrivePolicy::Situation found = situation(now);
    if (policy_.run_first(found, debt(now, received, !policy_.comes_back(found)), !cq.empty()) ||
        (received && !engine_->leave_acks_behind())) {
        policy_.sent();
        engine_->run(now);
        wake_if_late(now);
    }
    const DrivePolicy::Answer answer =
        policy_.poll_ends(situation(now), {.packets = received, .completion = !cq.empty()});
    apply(answer.arming);
    if (answer.wake_thread) wake_thread(now);
    return answer.give_way;
}

void Shard::expect_sleep() {
    const std::lock_guard guard(lock_);
    if (policy_.has_gathered()) send_pending(parts_.host.now());
    // The time does not matter to a program that goes to sleep.
    apply(policy_.sleep_expected(situation(Instant{})).arming);
}

void Shard::pass() {
    const std::lock_guard guard(lock_);
}

void Shard::forget(const device::CompletionQueue& cq) {
    const std::lock_guard guard(lock_);
    engine_->forget(cq);
}

void Shard::end_copies(transport::QueuePair& qp) {
    while (ends_copies(qp)) std::this_thread::yield();
}

// True if it has to be asked again.
bool Shard::ends_copies(transport::QueuePair& qp) {
    const std::lock_guard guard(lock_);
    if (!qp.delivers()) [[likely]]
        return false;
    const Instant now = parts_.host.now();
    transport::QpAttributes to;
    to.state = transport::QpState::Err;
    const transport::AttributeMask mask{static_cast<std::uint32_t>(transport::Attribute::State)};
    // Every state may go there.
    if (qp.state() != transport::QpState::Err) ASSERT(engine_->modify_qp(now, qp, to, mask));
    copies_.empty_into(now, *engine_);
    send_pending(now);
    return qp.delivers();
}

void Shard::end_deliveries() {
    mem::CopyToken end = 0;  // Of the copies to wait for.
    while (delivers_before(end)) std::this_thread::yield();
}

// True if it has to be asked again.
bool Shard::delivers_before(mem::CopyToken& end) {
    const std::lock_guard guard(lock_);
    const transport::Copies* const copies = engine_->copies();
    if (copies == nullptr || copies->size() == 0) [[likely]]
        return false;
    if (end == 0) end = copies->next();
    const Instant now = parts_.host.now();
    copies_.empty_into(now, *engine_);
    send_pending(now);
    return copies->delivers_before(end);
}

void Shard::flush() {
    // The process is exiting and other threads may have died with the lock: do not wait for ever.
    inspect(kExitPatience, [this](device::Engine&) { send_pending(parts_.host.now()); });
}

bool Shard::inspect(Duration patience, const std::function<void(device::Engine&)>& look) {
    const Instant give_up = parts_.host.now() + patience;
    while (!lock_.try_lock()) {
        if (parts_.host.now() > give_up) return false;
        std::this_thread::yield();
    }
    const std::lock_guard guard(lock_, std::adopt_lock);
    look(*engine_);
    return true;
}

int Shard::requests_fd() {
    const std::lock_guard guard(lock_);
    return port_->requests_fd();
}

bool Shard::poll_requests() {
    Session session(*this, Work::Mail);
    return port_->poll_requests(session.now(), *engine_);
}

void Shard::take_arrived() {
    Session session(*this, Work::Mail);
    for (int i = 0; i < kTakeMax && port_->poll_all(session.now(), *engine_); ++i) continue;
}

void Shard::serve_mail(std::function<void()> bring) {
    const bool served = static_cast<bool>(bring);
    {
        const std::lock_guard guard(mail_mutex_);
        bring_ = std::move(bring);
    }
    const std::lock_guard guard(lock_);
    mail_served_ = served;
}

bool Shard::note_mail() {
    const bool brought = taker_ == Taker::Thread && mail_served_;
    if (brought) mail_waits_ = true;
    return !brought && taker_ != Taker::Manager;
}

void Shard::bring_mail() {
    if (!std::exchange(mail_waits_, false)) return;
    const std::lock_guard guard(mail_mutex_);
    if (bring_) bring_();
}

void Shard::body() {
    mem::guard_install();
    while (!stop_.load()) body_turn();
}

// The thread was woken by an arrival, and the port is not armed any more. True: the program came
// for it.
bool Shard::left_to_program() {
    std::uint64_t polls = 0;
    {
        const std::lock_guard guard(lock_);
        polls = polls_.load(std::memory_order_relaxed);
        if (!policy_.leave_arrival(polls)) return false;
    }
    const Instant end = parts_.host.now() + DrivePolicy::kTrial;
    bool came_back = false;
    while (!came_back && !stop_.load() && parts_.host.now() < end) {
        const bool arrived = port_->wait(end);
        if (arrived) armed_.store(false, std::memory_order_relaxed);
        came_back = polls_.load(std::memory_order_relaxed) != polls;
        if (arrived && !came_back) return false;  // It armed the port in order to sleep.
    }
    const std::lock_guard guard(lock_);
    policy_.trial_ends(came_back);
    return came_back;
}

void Shard::note_arrival(Instant now) {
    policy_.thread_took_arrival();
    linger_policy_.arrived(now);
    polls_at_arrival_ = polls_.load(std::memory_order_relaxed);
}

// Between two looks of a thread that would otherwise sleep.
void Shard::linger() {
    if (!linger_policy_.gives_way(parts_.host.now())) return;
    const bool alone = parts_.host.give_way();
    linger_policy_.gave_way(parts_.host.now(), alone);
}

Instant Shard::drive_until_idle(std::uint64_t& polls) {
    const std::lock_guard guard(lock_);
    taker_ = Taker::Thread;
    const Rollback taken([this] { taker_ = Taker::Program; });
    Instant now = parts_.host.now();
    bool received = true, ack_waits = false;
    for (int i = 0; i < kRoundsMax && received; ++i) {
        received = receive(now);
        if (received) note_arrival(now);
        if (!received && engine_->has_work()) policy_.answer_overdue();
        const DrivePolicy::Debt owed = debt(now, received, true);
        ack_waits = received && policy_.ack_waits(owed) && engine_->leave_acks_behind();
        if (ack_waits) break;
        if (owed.due) {
            policy_.sent();
            engine_->run(now);
        }
        now = parts_.host.now();
    }
    lingers_ = false;
    if (!ack_waits && (received || engine_->has_work())) return Instant{};  // Others first.
    // A program that polls takes the next ones.
    lingers_ = !ack_waits && linger_policy_.lingers(now) &&
               polls_.load(std::memory_order_relaxed) == polls_at_arrival_;
    if (lingers_) return Instant{};
    apply(policy_.thread_sleeps(situation(now)));
    polls = polls_.load(std::memory_order_relaxed);
    const Instant until = ack_waits ? now + DrivePolicy::kAnswerGap : engine_->next_wakeup();
    thread_sleeps_until_.store(until, std::memory_order_relaxed);
    return until;
}

// What there is no memory for is done a moment later.
void Shard::look_at_interfaces() {
    look_again_ |= port_->interfaces_changed();
    if (look_again_) look_again_ = !with_memory(parts_.interfaces_changed);
}

// Outside of the lock: the connection manager takes it to ask them.
void Shard::look_at_suspects() {
    if (!port_->has_suspects()) return;
    cm::Suspects suspects;
    {
        const std::lock_guard guard(lock_);
        suspects = port_->take_suspects();
    }
    if (!suspects.empty()) parts_.suspects_told(suspects);
}

// While there is always more to do the thread never sleeps, but what ends a sleep must be seen to:
// processes that want to join, rings that are offered, deaths, changes of addresses, suspects.
void Shard::look_around() {
    if (++busy_turns_ < kBusyTurnsMax) return;
    busy_turns_ = 0;
    if (port_->wait(Instant{})) armed_.store(false, std::memory_order_relaxed);
    look_at_interfaces();
    look_at_suspects();
}

void Shard::body_turn() {
    std::uint64_t polls_seen = 0;
    Instant until = drive_until_idle(polls_seen);
    bring_mail();
    if (until == Instant{}) {
        look_around();
        if (lingers_) linger();
        return;
    }
    busy_turns_ = 0;
    for (;;) {
        if (look_again_) until = std::min(until, parts_.host.now() + kLookAgainAfter);
        const bool arrived = port_->wait(until);
        look_at_interfaces();
        look_at_suspects();
        if (arrived) {
            // The port has disarmed itself.
            armed_.store(false, std::memory_order_relaxed);
            if (!left_to_program()) return;
        }
        const std::uint64_t polls = polls_.load(std::memory_order_relaxed);
        // A copy that is over does not wait for the program, which may have polled for the last
        // time.
        if (stop_.load() || polls == polls_seen || copies_.pending()) return;
        polls_seen = polls;
        until = parts_.host.now() + DrivePolicy::kWatch;
        thread_sleeps_until_.store(until, std::memory_order_relaxed);
    }
}

}  // namespace feroce::process
