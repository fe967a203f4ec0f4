#include "process/process.hpp"

#include <bit>
#include <chrono>
#include <thread>
#include <utility>

#include "base/rollback.hpp"
#include "base/uncancelled.hpp"
#include "process/abi_call.hpp"
#include "process/state_layout.hpp"

namespace feroce::process {

namespace {

// Of an engine: a hundred connections that lose at a path MTU of 1 KiB.
constexpr std::size_t kHeldBytesMax = std::size_t{64} << 20;

}  // namespace

std::atomic<Process*> Process::current_{nullptr};

Process::Process(std::unique_ptr<host::Host> host, device::EventListener& events, Options options)
    : host_(std::move(host)),
      events_(events),
      memory_(mem::Limits{}, host_->random()),
      options_(std::move(options)) {
    ASSERT(shards_max() <= kShardsMax);
}

Result<void> Process::open() {
    if (options_.refusal.code != 0) return options_.refusal;
    const std::lock_guard lock(mutex_);
    if (opens_ > 0) {
        ++opens_;
        return {};
    }
    Rollback stop([this] {
        opens_ = 0;
        end_shards();
    });
    while (shard_count() < options_.shards)
        if (const Result<void> started = start_shard(); !started) return started;
    opens_ = 1;
    for (std::atomic<std::uint32_t>& told : told_) told.store(0, std::memory_order_relaxed);
    if (state_ != nullptr) {
        state_->start(*host_, [this] { publish_state(); });
        state_->publish(shards());  // Who is killed at once is known by its slots.
    }
    stop.keep();
    return {};
}

void Process::close() {
    const std::lock_guard lock(mutex_);
    ASSERT(opens_ > 0);
    if (--opens_ > 0) return;
    flush();
    // Without memory it keeps what it showed last.
    if (state_ != nullptr) within_memory("state page", [this] { state_->publish(shards(), true); });
    end_shards();
}

Result<void> Process::start_shard() {
    Result<std::unique_ptr<Shard>> shard =
        Shard::start({.host = *host_,
                      .memory = memory_,
                      .xrc = xrc_,
                      .events = events_,
                      .interfaces_changed = options_.interfaces_changed,
                      .suspects_told = options_.suspects_told,
                      .held_bytes_max = options_.repairs ? kHeldBytesMax : 0});
    if (!shard) return shard.error();
    const std::uint32_t count = shard_count();
    shards_[count] = std::move(*shard);
    shard_count_.store(count + 1, std::memory_order_release);
    return {};
}

void Process::end_shards() {
    shard_count_.store(0, std::memory_order_release);
    for (std::unique_ptr<Shard>& shard : shards_) shard.reset();
    next_shard_.store(0, std::memory_order_relaxed);
}

// Where none is to be had the others do its work.
void Process::add_shard() {
    const std::lock_guard lock(mutex_);
    if (shard_count() >= shards_max() || !host_->has_ports_to_spare() || !start_shard()) return;
    if (state_ != nullptr) within_memory("state page", [this] { state_->publish(shards()); });
}

std::uint32_t Process::pick_shard(std::uint32_t near) {
    const bool grows = shards_max() > options_.shards;
    // A thread that polls the queue drives one shard then, and not several.
    if (grows && near != 0) return static_cast<std::uint32_t>(std::countr_zero(near));
    // Round robin: any order would do, so relaxed.
    const std::uint32_t turn = next_shard_.fetch_add(1, std::memory_order_relaxed);
    if (grows && turn >= shard_count() && turn < shards_max()) add_shard();
    return turn % shard_count();
}

namespace {

// A look at a shard that has nothing for the poller costs a system call.
template <class F>
void each_shard_of(const device::CompletionQueue& cq,
                   std::span<const std::unique_ptr<Shard>> shards, F&& f) {
    const std::uint32_t bits = cq.shards();
    for (std::size_t i = 0; i < shards.size(); ++i)
        if ((bits >> i & 1) != 0) f(*shards[i]);
}

}  // namespace

void Process::drive(device::CompletionQueue& cq) {
    each_shard_of(cq, shards(), [&cq](Shard& shard) { shard.drive(cq); });
}

void Process::expect_sleep(const device::CompletionQueue& cq) {
    each_shard_of(cq, shards(), [](Shard& shard) { shard.expect_sleep(); });
}

void Process::note_poll(const device::CompletionQueue& cq) {
    each_shard_of(cq, shards(), [](Shard& shard) { shard.note_poll(); });
}

bool Process::armed(const device::CompletionQueue& cq) const {
    bool all = true;
    each_shard_of(cq, shards(), [&all](const Shard& shard) { all = all && shard.armed(); });
    return all;
}

void Process::quiesce() {
    for (const std::unique_ptr<Shard>& shard : shards()) shard->pass();
}

void Process::end_deliveries() {
    for (const std::unique_ptr<Shard>& shard : shards()) shard->end_deliveries();
}

void Process::forget(const device::CompletionQueue& cq) {
    for (const std::unique_ptr<Shard>& shard : shards()) shard->forget(cq);
}

void Process::flush() {
    for (const std::unique_ptr<Shard>& shard : shards()) shard->flush();
}

void Process::export_state(StateExport::DeviceName device_name, StateExport::Inventory inventory) {
    const std::lock_guard lock(mutex_);
    state_ = std::make_unique<StateExport>(device_name, inventory);
}

void Process::publish_state() {
    const std::lock_guard lock(mutex_);
    within_memory("state page", [this] { state_->publish(shards()); });
}

namespace {

// A thread that opens or closes a device or publishes just now is soon done, or has died with the
// lock.
std::unique_lock<std::mutex> lock_soon(std::mutex& mutex, host::Host& host, Duration patience) {
    const Instant give_up = host.now() + patience;
    std::unique_lock lock(mutex, std::try_to_lock);
    while (!lock.owns_lock() && host.now() < give_up) {
        std::this_thread::yield();
        (void)lock.try_lock();
    }
    return lock;
}

// How long a failing completion waits for the lock.
constexpr Duration kFailurePatience = std::chrono::milliseconds(10);
// Of a program's time, the part that publishing failures may take. A page costs more the more queue
// pairs there are, and with one peer many of them may fail.
constexpr int kFailureShare = 10;

}  // namespace

bool Process::publish_failure() {
    const auto lock = lock_soon(mutex_, *host_, kFailurePatience);
    const Instant begin = host_->now();
    if (!lock.owns_lock() || begin < next_failure_) return false;
    within_memory("state page", [this] { state_->publish(shards()); });
    const Instant end = host_->now();
    next_failure_ = end + (kFailureShare - 1) * (end - begin);
    return true;
}

// Those between two ids, the last few. What is rare enough is published with everything around it
// as well.
void Process::write_failures(SlotNumber slot, std::uint32_t told, std::uint32_t last) {
    constexpr std::uint32_t kMost = kNotes / 2;
    std::array<transport::Reason, kMost> found;
    std::size_t count = 0;
    for (const std::unique_ptr<Shard>& shard : shards()) {
        if (shard->slot() != slot) continue;
        shard->inspect(kFailurePatience, [&](const device::Engine& engine) {
            for (std::uint32_t id = last - std::min(last - told, kMost) + 1; id != last + 1; ++id)
                if (const transport::Reason* reason = engine.reasons().find(id))
                    found[count++] = *reason;
        });
    }
    for (std::size_t i = 0; i < count; ++i) state_->note_failure(found[i]);
}

void Process::note_failure(Qpn qpn, std::uint32_t reason) {
    if (state_ == nullptr || (reason & transport::ReasonLog::kOrderly) != 0) return;
    std::atomic<std::uint32_t>& told = told_[slot_of(qpn)];
    // Everything that a queue pair flushes has the reason of its first failure. Ids have 31 bits.
    const std::uint32_t before = told.load(std::memory_order_relaxed);
    if (static_cast<std::int32_t>((reason - before) << 1) <= 0) return;
    const Uncancelled call;
    within_memory("state page", [&] { write_failures(slot_of(qpn), before, reason); });
    if (!publish_failure()) state_->ask();
    told.store(reason, std::memory_order_relaxed);
}

void Process::finish_state() {
    const auto lock = lock_soon(mutex_, *host_, kExitPatience);
    if (state_ == nullptr || !lock.owns_lock()) return;
    within_memory("state page", [this] { state_->publish(shards(), true); });
    state_->finish();
}

void Process::abandon() {
    host_->abandon();
    if (state_ != nullptr) state_->abandon();
}

}  // namespace feroce::process
