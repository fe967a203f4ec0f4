// Instance: the process-wide object with what this library keeps beside it. The product has one,
// made at first use and leaked, because threads may still be in it when the program's destructors
// run. A simulation has one a node and makes the node's current whenever one of its programs runs.
// Nothing of this library that changes is kept elsewhere: a forked child gets a new one.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/devices.hpp"
#include "process/cm_server.hpp"
#include "process/graveyard.hpp"
#include "process/process.hpp"
#include "verbs/device_names.hpp"
#include "verbs/events.hpp"
#include "verbs/fault_timer.hpp"
#include "verbs/lint.hpp"
#include "verbs/objects.hpp"

namespace feroce::verbs {

class Instance final : private Listener, public process::Process {
public:
    // What a program's environment may ask for.
    struct Wishes {
        std::uint32_t shards = 1;      // From the start.
        std::uint32_t shards_max = 0;  // Added when they are needed: see process::Process::Options.
        Duration keepalive{};          // 0: idle peers are not asked.
        Error refusal{};               // Not 0: no device can be opened.
        LintWishes lint{};
        DeviceNames names{};
        bool chooses_devices = false;  // It names interfaces; others are no devices.
        bool repairs = true;           // See process::Process::Options.
        bool plays_foreign = false;    // Simulations only: see process::Process::Options.
    };
    Instance(std::unique_ptr<host::Host> host, const Wishes& wishes);
    ~Instance() override;  // Contexts must be closed, threads of the program gone.

    // The current one. Made for this machine if there is none.
    static Instance& get();
    // Null if there is none.
    static Instance* current() { return static_cast<Instance*>(process::Process::current()); }

    std::mutex mutex;  // Guards the next two.
    // By interface: its name and number. Programs hold pointers to devices beyond
    // ibv_free_device_list.
    std::map<std::pair<std::string, std::uint32_t>, Device> devices;
    std::vector<Context*> contexts;

    // The context of objects that are no more: not alive(), and without optional operations.
    Context dead;
    process::Graveyard<Context, Pd, Mr, Mw, Dm, Td, Xrcd, Channel, Cq, Srq, Ah, Qp> graveyard;

    cuda::Devices gpus{host()};

    device::EventListener& event_listener() { return *this; }
    device::CompletionListener& completion_listener() { return *this; }  // Of every queue.

    const std::unique_ptr<Lint> lint;  // Null: off.
    const DeviceNames names;
    ibv_context_ops operations{};  // Of live contexts, before annotations for sanitizers.

    // An event of the device that FEROCE_FAULTS asks for: all contexts get it, and the port is down
    // between PORT_ERR and PORT_ACTIVE.
    void raise_fault(process::FaultEvent event, const char* call) override;
    bool port_is_down() const { return port_down_.load(std::memory_order_relaxed); }
    void start_timed_faults();  // Once; a device is open.

    // Refused, and told of once, while the environment names interfaces of which none is here.
    Result<void> check_devices();

    // Null if it does not run and is not started, or cannot be, with errno set.
    process::CmServer* cm_server(bool start);
    // The same without waiting for it, for other processes: one of another user that has a
    // listener, or peers of one that has died.
    void want_cm_server();
    void on_death();  // Processes have died without telling their peers; never blocks.
    void at_exit();
    void abandon_all();  // In a forked child: takes no lock.

private:
    void on_interfaces_changed();
    void on_suspects(const cm::Suspects& peers);

    const bool chooses_devices_;
    std::atomic<bool> told_of_devices_{false};
    std::atomic<bool> port_down_{false};  // What ibv_query_port says, and nothing else.
    std::once_flag timed_faults_started_;
    std::unique_ptr<FaultTimer> fault_timer_;  // Null: no faults by time.

    std::mutex cm_mutex_;
    std::atomic<process::CmServer*> cm_{nullptr};  // Owned. Released when it is ready to be used.

    std::mutex starter_mutex_;  // Guards the next two.
    std::unique_ptr<host::Task> starter_;
    Instant next_start_{};
    std::atomic<bool> starts_{false};  // The starter has not ended.
};

// Of a live context.
inline Instance& instance_of(ibv_context* context) {
    return static_cast<Instance&>(process_of(context));
}

// Destroys an object: it stays readable for a while under a context that refuses everything.
// `context` is the object's public pointer to its context.
template <class T>
void bury(T& object, ibv_context*& context) {
    Instance& instance = instance_of(context);
    context = &instance.dead.base.context;
    instance.graveyard.bury(object);
}

}  // namespace feroce::verbs
