// StateExport: keeps the state page of one process. Its thread sleeps until a reader asks; nothing
// of the data path knows of it. Only on real machines: a simulated node has none.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/host.hpp"
#include "process/shard.hpp"
#include "process/state_notes.hpp"
#include "process/state_page.hpp"

namespace feroce::process {

StateReason reason_of(const transport::Reason& reason);

// What an engine remembers, as it was at a moment: copied under its lock, which takes no memory,
// and put into words after that.
struct EngineMemory {
    transport::Counters counters;
    transport::ReasonLog log;
    std::optional<Gid> mangled_source;

    void look(const device::Engine& engine);
};
// The reasons, oldest first, then what it notices.
std::vector<StateReason> reasons_of(const EngineMemory& memory);

class StateExport {
public:
    // The name of the device that a queue pair was created on, from the owner in its QpInit.
    using DeviceName = const char* (*)(const void* owner);
    // What the program has created, by device. May leave out what is locked.
    using Inventory = std::vector<StateResources> (*)();
    using Shards = std::span<const std::unique_ptr<Shard>>;

    StateExport(DeviceName device_name, Inventory inventory);
    ~StateExport();

    // `refresh` is called on a thread of ours when somebody asks; it must call publish(). No page
    // is no error: the process then cannot be looked at. When started before, only tells as whom
    // the port was entered this time.
    void start(host::Host& host, std::function<void()> refresh);
    // One thread at a time. `finished`: at exit.
    void publish(Shards shards, bool finished = false);
    // See StatePage::note_connection(). A device is open.
    void note_connection(Qpn qpn, Qpn peer);
    // See StateNotes. Any thread at any time.
    void note_refusal(const char* call, const Error& error, const transport::QueuePair* qp);
    void note_raised(const char* call, FaultEvent event, const transport::QueuePair* qp);
    void note_failure(const transport::Reason& reason);
    void ask();  // The thread is to publish soon. Any thread.
    // At exit: leaves the page behind if it explains something.
    void finish();
    void abandon();  // In a forked child.

private:
    void body();
    void collect(Shard& shard, EngineMemory& memory, StateSnapshot& out);
    // Under the shard's lock: neither takes memory.
    void collect_qps(device::Engine& engine, StateSnapshot& out);
    StateQp record_of(const device::Engine& engine, transport::QueuePair& qp, Instant now);
    std::uint8_t device_index(const char* name);

    DeviceName device_name_;
    Inventory inventory_;
    host::Host* host_ = nullptr;  // Set with page_.
    host::Identity identity_;     // Of the last start.
    std::unique_ptr<StatePage> page_;
    StateNotes notes_;
    std::atomic<StatePage*> notes_page_{nullptr};  // page_, released when it has all it needs.
    std::function<void()> refresh_;
    using Name = std::array<char, 64>;  // As long as verbs allows, with its final zero.
    std::vector<Name> devices_;         // Every one that ever had a queue pair; never grows.
    bool explains_ = false;             // The page holds a reason.
    std::atomic<bool> stop_{false};     // The interrupt that follows orders it.
    std::unique_ptr<host::Task> thread_;
};

}  // namespace feroce::process
