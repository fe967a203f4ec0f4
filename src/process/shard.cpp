#include "process/shard.hpp"

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "mem/guard.hpp"

namespace feroce::process {
namespace {

using namespace std::chrono_literals;

// How often the thread looks whether pollers are still there.
constexpr Duration kWatch = 1ms;
// Two empty polls this close mean a spinning poller, not a program that looks now and then.
constexpr Duration kSpinGap = 20us;
// How soon we notice that the program replaced a signal handler or changed a mask.
constexpr Duration kRecheck = 5ms;
// Runs of the engine that one call may do before it leaves the rest to the thread.
constexpr int kRunsMax = 16;
// Rounds of receiving and running that the thread does before others get a chance at the lock.
constexpr int kRoundsMax = 8;
// Batches that take_arrived() takes at most: more datagrams of some size fit no receive buffer.
constexpr int kTakeMax = 256;
// Completions that a poller must take and come back from, arrivals apart, before we believe that it
// always comes back; see Shard::doubts_.
constexpr int kDoubtsMax = 64;
// How long an arrival is left to a program that may come back by itself, how many doubts its return
// takes away, and how seldom we try if it does not return.
constexpr Duration kTrial = 200us;
constexpr int kTrialWorth = 16;
constexpr int kTrialGapMax = 1 << 16;
// Arrivals in a row that a program must have answered, and how soon, before acknowledgements wait
// for its answer.
constexpr int kAnswersNeeded = 16;
constexpr Duration kAnswerGap = 50us;
// How often a poller steps aside for a thread that waits for the lock: a mutex favours whoever
// spins.
constexpr int kYieldsMax = 16;
// Of how many vain tries for the lock one gives up the core.
constexpr unsigned kFailuresBeforeYield = 32;
// A program spins for what another process on the same core may be about to send.
constexpr std::uint32_t kPollsBeforeYield = 32;

}  // namespace

Result<std::unique_ptr<Shard>> Shard::start(const Parts& parts) {
    std::unique_ptr<Shard> shard(new Shard(parts));
    Result<std::unique_ptr<host::HostPort>> port = parts.host.open_port();
    if (!port) return port.error();
    shard->port_ = std::move(*port);
    device::Engine::Config config;
    config.slot = shard->port_->slot();
    shard->engine_ = std::make_unique<device::Engine>(
        config, device::Engine::Parts{.memory = parts.memory,
                                      .xrc = parts.xrc,
                                      .port = *shard->port_,
                                      .events = parts.events,
                                      .random = parts.host.random()});
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
    if (!shard_.lock_.try_lock()) {
        shard_.waiting_.fetch_add(1, std::memory_order_relaxed);
        shard_.lock_.lock();
        shard_.waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    // A receive needs the time only if it is flushed at once, and then not precisely.
    now_ = work_ == Work::Receives ? shard_.engine_->last_run() : shard_.parts_.host.now();
    if (work_ == Work::Changes) shard_.send_pending(now_);
}

Shard::Session::~Session() {
    if (work_ == Work::Posts) shard_.note_post(now_);
    if (work_ != Work::Receives) {
        shard_.send_pending(now_);
        shard_.wake_if_late(now_);
    }
    shard_.lock_.unlock();
}

void Shard::send_pending(Instant now) {
    for (int i = 0; i < kRunsMax && engine_->has_work(); ++i) engine_->run(now);
}

void Shard::wake_if_late(Instant now) {
    const Instant due = engine_->has_work() ? now : engine_->next_wakeup();
    const Instant looks = thread_sleeps_until_.load(std::memory_order_relaxed);
    // Whoever always comes back to poll sees to what falls due before the thread's next look.
    const bool comes_back = doubts_ == 0 && !armed() && looks <= now + 2 * kWatch;
    if (due >= looks || comes_back) return;
    thread_sleeps_until_.store(due, std::memory_order_relaxed);
    port_->wake();
}

bool Shard::receive(Instant now) {
    if (now - last_recheck_ > kRecheck) {
        last_recheck_ = now;
        mem::guard_recheck();
    }
    return port_->poll(now, *engine_);
}

bool Shard::run_engine(Instant now, bool received) {
    if (!received && engine_->next_wakeup() > now) return false;
    engine_->run(now);
    return true;
}

void Shard::arm() {
    if (armed_.load(std::memory_order_relaxed)) return;
    armed_.store(true, std::memory_order_relaxed);
    watched_ = true;
    port_->arm();
}

void Shard::disarm(Instant now) {
    const bool for_long = doubts_ == 0;
    if (for_long ? !watched_ : !armed()) return;
    if (for_long) watched_ = false;
    armed_.store(false, std::memory_order_relaxed);
    port_->disarm(for_long);
    // From now on the thread must look after us now and then.
    if (thread_sleeps_until_.load(std::memory_order_relaxed) <= now + 2 * kWatch) return;
    thread_sleeps_until_.store(now, std::memory_order_relaxed);
    port_->wake();
}

void Shard::drive(device::CompletionQueue& cq) {
    if (!try_to_drive()) return;
    bool give_way = false;
    {
        const std::lock_guard guard(lock_, std::adopt_lock);
        drive_locked(cq);
        give_way = empty_polls_ > 0 && empty_polls_ % kPollsBeforeYield == 0;
    }
    // The peer, or our thread, may wait for this very core.
    if (give_way) std::this_thread::yield();
}

void Shard::note_arrival(Instant now) {
    if (!engine_->has_work()) return;  // Acknowledgements: nothing to be answered.
    if (unanswered_) answers_ = 0;     // Whoever sends twice does not wait for an answer.
    unanswered_ = true;
    arrived_at_ = now;
}

void Shard::note_post(Instant now) {
    if (!unanswered_) return;
    unanswered_ = false;
    answers_ = now - arrived_at_ < kAnswerGap ? std::min(answers_ + 1, kAnswersNeeded) : 0;
}

bool Shard::answer_expected(Instant now) const {
    return answers_ == kAnswersNeeded && engine_->owes_only_acks(now);
}

void Shard::drive_locked(device::CompletionQueue& cq) {
    const Instant now = parts_.host.now();
    if (returned_completion_) {
        // It came back, and nothing had arrived for which our thread would have been needed.
        returned_completion_ = false;
        doubts_ = std::max(doubts_ - 1, 0);
    }
    note_poll();
    const bool received = receive(now);
    if (received) note_arrival(now);
    // A program that always comes back, or answers, gets its completion first: what we owe the peer
    // then leaves together with the program's answer, or with its next poll. If it stays away, the
    // thread looks.
    const bool comes_back = doubts_ == 0 && !armed();
    const bool watched = thread_sleeps_until_.load(std::memory_order_relaxed) <= now + 2 * kWatch;
    const bool program_first = !cq.empty() && (comes_back || (watched && answer_expected(now)));
    if (!program_first && run_engine(now, received)) wake_if_late(now);
    if (!cq.empty()) {
        empty_polls_ = 0;
        returned_completion_ = true;
        sleep_expected_ = false;
        if (doubts_ > 0) arm();
        return;
    }
    if (received) {
        empty_polls_ = 0;
        return;
    }
    const bool spinning = now - last_empty_poll_ < kSpinGap;
    last_empty_poll_ = now;
    empty_polls_ = spinning ? empty_polls_ + 1 : 1;
    if (empty_polls_ >= 2 && !sleep_expected_) disarm(now);
}

bool Shard::try_to_drive() {
    if (waiting_.load(std::memory_order_relaxed) == 0) {
        yields_.store(0, std::memory_order_relaxed);
        if (lock_.try_lock()) return true;
        // Whoever has the lock may wait for our core.
        if (failures_.fetch_add(1, std::memory_order_relaxed) % kFailuresBeforeYield == 0)
            std::this_thread::yield();
        return false;
    }
    if (yields_.fetch_add(1, std::memory_order_relaxed) >= kYieldsMax) return lock_.try_lock();
    std::this_thread::yield();
    return false;
}

void Shard::expect_sleep() {
    const std::lock_guard guard(lock_);
    sleep_expected_ = true;
    arm();
}

void Shard::pass() {
    const std::lock_guard guard(lock_);
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
    look(*engine_);
    lock_.unlock();
    return true;
}

int Shard::requests_fd() {
    const std::lock_guard guard(lock_);
    return port_->requests_fd();
}

bool Shard::poll_requests() {
    Session session(*this);
    return port_->poll_requests(session.now(), *engine_);
}

void Shard::take_arrived() {
    Session session(*this);
    for (int i = 0; i < kTakeMax && port_->poll_all(session.now(), *engine_); ++i) continue;
}

void Shard::body() {
    mem::guard_install();
    while (!stop_.load()) body_turn();
}

void Shard::note_needed() {
    // With a poll since the last completion this was a race with a poller, and proves nothing.
    if (!returned_completion_) return;
    returned_completion_ = false;
    doubts_ = kDoubtsMax;
}

bool Shard::trial_is_due(std::uint64_t& polls) {
    const std::lock_guard guard(lock_);
    polls = polls_.load(std::memory_order_relaxed);
    const bool polled = std::exchange(polls_at_arrival_, polls) != polls;
    return doubts_ > 0 && polled && !sleep_expected_ && --arrivals_to_trial_ <= 0;
}

void Shard::conclude_trial(bool came_back) {
    const std::lock_guard guard(lock_);
    trial_gap_ = came_back ? 1 : std::min(2 * trial_gap_, kTrialGapMax);
    arrivals_to_trial_ = trial_gap_;
    if (came_back) doubts_ = std::max(doubts_ - kTrialWorth, 0);
}

// Something arrived while programs poll now and then, and the port is not armed any more.
bool Shard::program_comes_back() {
    std::uint64_t polls = 0;
    if (!trial_is_due(polls)) return false;
    const Instant end = parts_.host.now() + kTrial;
    bool came_back = false;
    while (!came_back && !stop_.load() && parts_.host.now() < end) {
        const bool arrived = port_->wait(end);
        if (arrived) armed_.store(false, std::memory_order_relaxed);
        came_back = polls_.load(std::memory_order_relaxed) != polls;
        if (arrived && !came_back) return false;  // It armed the port in order to sleep.
    }
    conclude_trial(came_back);
    return came_back;
}

void Shard::body_turn() {
    Instant until;
    {
        const std::lock_guard guard(lock_);
        Instant now = parts_.host.now();
        bool received = true, answer_first = false;
        for (int i = 0; i < kRoundsMax && received; ++i) {
            received = receive(now);
            if (received) {
                note_arrival(now);
                note_needed();
            } else if (unanswered_ && engine_->has_work()) {
                answers_ = 0;  // The time for an answer is over.
            }
            answer_first = received && answer_expected(now);
            if (answer_first) break;
            run_engine(now, received);
            now = parts_.host.now();
        }
        if (!answer_first && (received || engine_->has_work()))
            return;  // Others first, then go on.
        arm();
        polls_seen_ = polls_.load(std::memory_order_relaxed);
        until = answer_first ? now + kAnswerGap : engine_->next_wakeup();
        thread_sleeps_until_.store(until, std::memory_order_relaxed);
    }
    for (;;) {
        const bool arrived = port_->wait(until);
        if (port_->interfaces_changed()) parts_.interfaces_changed();
        if (arrived) {
            // The port has disarmed itself.
            armed_.store(false, std::memory_order_relaxed);
            if (!program_comes_back()) return;
        }
        const std::uint64_t polls = polls_.load(std::memory_order_relaxed);
        if (stop_.load() || polls == polls_seen_) return;
        polls_seen_ = polls;
        until = parts_.host.now() + kWatch;
        thread_sleeps_until_.store(until, std::memory_order_relaxed);
    }
}

}  // namespace feroce::process
