#include "process/process.hpp"

#include <thread>
#include <utility>

namespace feroce::process {

std::atomic<Process*> Process::current_{nullptr};

Process::Process(std::unique_ptr<host::Host> host, device::EventListener& events, Options options)
    : host_(std::move(host)),
      events_(events),
      memory_(mem::Limits{}, host_->random()),
      options_(std::move(options)) {}

Result<void> Process::open() {
    if (options_.refusal.code != 0) return options_.refusal;
    const std::lock_guard lock(mutex_);
    if (opens_ > 0) {
        ++opens_;
        return {};
    }
    while (shards_.size() < options_.shards) {
        Result<std::unique_ptr<Shard>> shard =
            Shard::start({.host = *host_,
                          .memory = memory_,
                          .xrc = xrc_,
                          .events = events_,
                          .interfaces_changed = options_.interfaces_changed});
        if (!shard) {
            shards_.clear();
            return shard.error();
        }
        shards_.push_back(std::move(*shard));
    }
    opens_ = 1;
    if (state_ != nullptr) {
        state_->start(*host_, [this] { publish_state(); });
        state_->publish(shards_);  // Who is killed at once is known by its slots.
    }
    return {};
}

void Process::close() {
    const std::lock_guard lock(mutex_);
    ASSERT(opens_ > 0);
    if (--opens_ > 0) return;
    flush();
    if (state_ != nullptr) state_->publish(shards_, true);
    shards_.clear();
}

Shard& Process::pick_shard() {
    // Round robin: any order would do, so relaxed.
    return *shards_[next_shard_.fetch_add(1, std::memory_order_relaxed) % shards_.size()];
}

void Process::drive(device::CompletionQueue& cq) {
    for (const std::unique_ptr<Shard>& shard : shards_) shard->drive(cq);
}

void Process::expect_sleep() {
    for (const std::unique_ptr<Shard>& shard : shards_) shard->expect_sleep();
}

void Process::note_poll() {
    for (const std::unique_ptr<Shard>& shard : shards_) shard->note_poll();
}

bool Process::armed() const {
    for (const std::unique_ptr<Shard>& shard : shards_)
        if (!shard->armed()) return false;
    return true;
}

void Process::quiesce() {
    for (const std::unique_ptr<Shard>& shard : shards_) shard->pass();
}

void Process::flush() {
    for (const std::unique_ptr<Shard>& shard : shards_) shard->flush();
}

void Process::export_state(StateExport::DeviceName device_name, StateExport::Inventory inventory) {
    const std::lock_guard lock(mutex_);
    state_ = std::make_unique<StateExport>(device_name, inventory);
}

void Process::publish_state() {
    const std::lock_guard lock(mutex_);
    state_->publish(shards_);
}

void Process::finish_state() {
    // Whoever opens or closes a device or publishes just now is soon done, or has died with the
    // lock.
    const Instant give_up = host_->now() + kExitPatience;
    std::unique_lock lock(mutex_, std::try_to_lock);
    while (!lock.owns_lock() && host_->now() < give_up) {
        std::this_thread::yield();
        (void)lock.try_lock();
    }
    if (state_ == nullptr || !lock.owns_lock()) return;
    state_->publish(shards_, true);
    state_->finish();
}

void Process::abandon() {
    host_->abandon();
    if (state_ != nullptr) state_->abandon();
}

}  // namespace feroce::process
