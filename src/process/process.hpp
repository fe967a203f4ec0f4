// Process: everything of Feroce that a process has once: memory table, XRC domains, shards. Shards
// run while at least one device is open. Leaked on purpose: threads may still be in it when the
// program's destructors run.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "device/xrc.hpp"
#include "host/host.hpp"
#include "mem/memory.hpp"
#include "process/call_faults.hpp"
#include "process/device_memory.hpp"
#include "process/quota.hpp"
#include "process/shard.hpp"
#include "process/state_export.hpp"
#include "process/xrc_files.hpp"

namespace feroce::process {

class Process {
public:
    static constexpr std::uint32_t kShardsMax = 8;
    struct Options {
        std::uint32_t shards = 1;  // How many engines share the work from the start.
        // More are added up to this many, one for each completion queue that gets the first
        // queue pair: it probably has a thread of its own. Fewer than `shards`: none.
        std::uint32_t shards_max = 0;
        Duration keepalive{};        // Of the connection manager: see cm::Config.
        bool repairs = true;         // Only what is lost is sent again: see ADR 34.
        bool plays_foreign = false;  // For tests: peers shall not take it for a Feroce.
        Error refusal{};             // Not 0: why no device can be opened.
        // Called by a thread of ours when addresses or links of the machine have changed.
        std::function<void()> interfaces_changed = [] {};
        // Called by a thread of ours when the network says that packets did not reach peers.
        std::function<void(const cm::Suspects&)> suspects_told = [](const cm::Suspects&) {};
    };
    Process(std::unique_ptr<host::Host> host, device::EventListener& events, Options options);
    virtual ~Process() = default;

    // The object that ABI calls use. Null before the first use and again in a forked child.
    static Process* current() { return current_.load(std::memory_order_acquire); }
    static void set_current(Process* process) {
        current_.store(process, std::memory_order_release);
    }
    // relaxed: only the address is compared.
    static bool is_current(const Process* process) {
        return current_.load(std::memory_order_relaxed) == process;
    }

    host::Host& host() { return *host_; }
    mem::Memory& memory() { return memory_; }
    device::XrcDomains& xrc() { return xrc_; }
    Quotas& quotas() { return quotas_; }
    XrcFiles& xrc_files() { return xrc_files_; }
    DeviceMemory& device_memory() { return device_memory_; }

    // Between open() and close() the shards run.
    Result<void> open();
    void close();

    Duration keepalive() const { return options_.keepalive; }
    bool plays_foreign() const { return options_.plays_foreign; }
    // Grows while a device is open.
    std::uint32_t shard_count() const { return shard_count_.load(std::memory_order_acquire); }
    std::uint32_t shards_max() const { return std::max(options_.shards, options_.shards_max); }
    Shard& shard(std::size_t index) { return *shards_[index]; }
    // For a new queue pair: an index. `near`: bits of the shards that its completion queue gets
    // completions from already.
    std::uint32_t pick_shard(std::uint32_t near);

    // Of the shards that `cq` gets completions from: progress for a thread that polls it, what a
    // poller does that does not drive, and a program that is about to sleep.
    void drive(device::CompletionQueue& cq);
    void note_poll(const device::CompletionQueue& cq);
    bool armed(const device::CompletionQueue& cq) const;
    void expect_sleep(const device::CompletionQueue& cq);
    // After memory was deregistered: nobody touches it any more when this returns.
    void quiesce();
    void end_deliveries();  // See Shard.
    // As quiesce(), and what is still held for this queue is dropped: no queue pair uses it.
    void forget(const device::CompletionQueue& cq);
    // From the next open() on the `feroce` command can look into this process.
    void export_state(StateExport::DeviceName device_name, StateExport::Inventory inventory);
    // A failing completion is about to be handed out. What is known of it goes to the state page
    // first: the program may abort because of it. Not on the way of completions that succeed.
    void note_failure(Qpn qpn, std::uint32_t reason);
    // A call is about to be refused; `qp` is what it was about, or null.
    void note_refusal(const char* call, const Error& error, const transport::QueuePair* qp) {
        if (state_ != nullptr) state_->note_refusal(call, error, qp);
    }
    // The same for an event that FEROCE_FAULTS asked for at a call.
    void note_raised(const char* call, FaultEvent event, const transport::QueuePair* qp) {
        if (state_ != nullptr) state_->note_raised(call, event, qp);
    }
    // FEROCE_FAULTS asks for an event of the device; `call` is where, for people.
    virtual void raise_fault(FaultEvent, const char* /*call*/) {}
    // A queue pair was connected to that peer, or is no longer: the peer is 0. A device is open.
    void note_connection(Qpn qpn, Qpn peer) {
        if (state_ != nullptr) state_->note_connection(qpn, peer);
    }
    void flush();         // At exit.
    void finish_state();  // At exit, after flush().
    void abandon();       // In a forked child: closes what must die with the parent, takes no lock.

private:
    std::span<const std::unique_ptr<Shard>> shards() const {
        return {shards_.data(), shard_count()};
    }
    Result<void> start_shard();
    void end_shards();
    void add_shard();
    void publish_state();
    bool publish_failure();
    void write_failures(SlotNumber slot, std::uint32_t told, std::uint32_t last);

    static std::atomic<Process*> current_;

    std::unique_ptr<host::Host> host_;
    device::EventListener& events_;
    mem::Memory memory_;
    device::XrcDomains xrc_;
    Quotas quotas_;
    XrcFiles xrc_files_{xrc_};
    DeviceMemory device_memory_;
    Options options_;
    std::mutex mutex_;  // Guards opens_ and changes of shards_.
    std::uint32_t opens_ = 0;
    std::array<std::unique_ptr<Shard>, kShardsMax> shards_;
    // Released after the shard is there. It shrinks only when no device is open.
    std::atomic<std::uint32_t> shard_count_{0};
    std::atomic<std::uint32_t> next_shard_{0};
    Instant next_failure_{};  // Guarded by mutex_. Before, the export's thread tells of failures.
    // By slot, the last reason that the state page has, or soon will. Hints, hence relaxed.
    std::array<std::atomic<std::uint32_t>, std::size_t{1} << kSlotBits> told_{};
    std::unique_ptr<StateExport> state_;  // Null if nobody may look. Its thread uses all above.
};

}  // namespace feroce::process
