#include "verbs/instance.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/annotate.hpp"
#include "base/rollback.hpp"
#include "base/shortage.hpp"
#include "mem/watch.hpp"
#include "port/real_host.hpp"
#include "process/injected.hpp"
#include "verbs/common.hpp"
#include "verbs/contexts.hpp"
#include "verbs/ops.hpp"
#include "verbs/settings.hpp"

namespace feroce::verbs {
namespace {

// These three outlive a fork, with the C library's lists of hooks that they are about. They are
// made by the loader: what is made at first use, a fork may find half made.
constinit std::mutex making;                  // Held while an instance is made, and by a fork.
constinit bool exit_is_hooked = false;        // Guarded by `making`.
constinit Instance* real_instance = nullptr;  // That of this machine, if any; guarded likewise.

void before_fork() {
    making.lock();
    if (real_instance != nullptr) real_instance->host().before_fork();
}

void after_fork_in_parent() {
    if (real_instance != nullptr) real_instance->host().after_fork();
    making.unlock();
}

// Only the forking thread lives here: other locks may be held for ever, so none is taken.
void after_fork_in_child() {
    Instance* old = std::exchange(real_instance, nullptr);
    making.unlock();
    if (old == nullptr) return;
    process::Process::set_current(nullptr);
    old->abandon_all();
}

[[gnu::constructor]] void hook_forks() {
    (void)::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void at_exit() {
    const annotate::OwnCalls part;
    if (Instance* instance = Instance::current()) instance->at_exit();
}

std::vector<process::StateResources> inventory() {
    std::vector<process::StateResources> out;
    Instance* instance = Instance::current();
    if (instance == nullptr) return out;
    const std::unique_lock lock(instance->mutex, std::try_to_lock);
    if (!lock.owns_lock()) return out;
    for (const Context* context : instance->contexts) {
        const char* name = context->device->base.name;
        auto found = std::find_if(out.begin(), out.end(),
                                  [name](const auto& r) { return r.device == name; });
        if (found == out.end()) found = out.insert(out.end(), {.device = name});
        ++found->contexts;
        found->pds += context->pds.load(std::memory_order_relaxed);
        found->cqs += context->cqs.load(std::memory_order_relaxed);
        found->regions += context->regions.load(std::memory_order_relaxed);
        found->srqs += context->srqs.load(std::memory_order_relaxed);
    }
    return out;
}

const char* device_name(const void* owner) {
    return static_cast<const Qp*>(owner)->base.qp_base.context->device->name;
}

Instance* make_real() {
    Settings settings = read_settings();
    port::RealHost::Options& options = settings.host;
    options.requests_wanted = [] {
        if (Instance* instance = Instance::current()) instance->want_cm_server();
    };
    options.death_noticed = [] {
        if (Instance* instance = Instance::current()) instance->on_death();
    };
    const bool captures = !options.capture_path.empty();
    auto host = std::make_unique<port::RealHost>(std::move(options));
    if (captures && !host->captures())
        settings.wishes.refusal = {EINVAL, "FEROCE_PCAP names a file that cannot be written"};
    auto instance = std::make_unique<Instance>(std::move(host), settings.wishes);
    instance->export_state(device_name, inventory);
    return instance.release();
}

// Once for the process, before a device is opened. Without lint and sanitizers nothing is watched.
void watch_memory(bool any_order) {
    static mem::Watch watch{};
    if (any_order)
        watch.place = [](std::byte* at, const std::byte* from, std::size_t size,
                         mem::Watch::Store store) {
            Instance* instance = Instance::current();  // None yet, or none in a forked child.
            AnyOrder* order = instance == nullptr || instance->lint == nullptr
                                  ? nullptr
                                  : instance->lint->any_order();
            return order == nullptr ? store(at, from, size) : order->place(at, from, size, store);
        };
    if (annotate::has_msan())
        watch.written = [](const void* at, std::size_t size) { annotate::defined(at, size); };
    if (watch.place != nullptr || watch.written != nullptr) mem::set_watch(watch);
}

}  // namespace

Instance::Instance(std::unique_ptr<host::Host> host, const Wishes& wishes)
    : Process(std::move(host), static_cast<Listener&>(*this),
              {.shards = wishes.shards,
               .shards_max = wishes.shards_max,
               .keepalive = wishes.keepalive,
               .repairs = wishes.repairs,
               .plays_foreign = wishes.plays_foreign,
               .refusal = wishes.refusal,
               .interfaces_changed = [this] { on_interfaces_changed(); },
               .suspects_told = [this](const cm::Suspects& peers) { on_suspects(peers); }}),
      lint(wishes.lint.mode == LintMode::Off ? nullptr
                                             : std::make_unique<Lint>(*this, wishes.lint)),
      names(wishes.names),
      chooses_devices_(wishes.chooses_devices) {
    watch_memory(wishes.lint.any_order);
    make_dead(dead);
    fill_live_operations(operations, lint != nullptr);
}

Instance::~Instance() {
    fault_timer_.reset();
    starter_.reset();
    delete cm_.exchange(nullptr);  // Closes what rdma_cm has opened.
    ASSERT(contexts.empty());
}

Instance& Instance::get() {
    if (Instance* existing = current()) return *existing;
    const std::lock_guard lock(making);
    if (Instance* existing = current()) return *existing;
    if (!std::exchange(exit_is_hooked, true)) std::atexit(verbs::at_exit);
    real_instance = make_real();
    set_current(real_instance);
    return *real_instance;
}

void Instance::raise_fault(process::FaultEvent event, const char* call) {
    process::log(process::LogLevel::Warn, "%s: %s (%s)", call, process::kInjected,
                 process::name_of(event));
    note_raised(call, event, nullptr);
    if (event == process::FaultEvent::PortError) port_down_.store(true);
    if (event == process::FaultEvent::PortActive) port_down_.store(false);
    tell_contexts(*this, static_cast<ibv_event_type>(event));
}

void Instance::start_timed_faults() {
    const process::CallFaults* faults = process::call_faults();
    if (faults == nullptr) return;
    std::call_once(timed_faults_started_, [this, faults] {
        auto timer = std::make_unique<FaultTimer>(
            faults->plan(), [this](process::FaultEvent event) { raise_fault(event, "time"); });
        if (timer->empty()) return;
        if (Result<void> started = timer->start(host()); !started)
            process::log(process::LogLevel::Error, "FEROCE_FAULTS by time: %s",
                         started.error().why);
        fault_timer_ = std::move(timer);
    });
}

Result<void> Instance::check_devices() {
    if (!chooses_devices_ || !host().interfaces().empty()) return {};
    const Error nothing{ENODEV,
                        "FEROCE_DEVICES names no interface that is here and has an address"};
    if (!told_of_devices_.exchange(true)) process::log(process::LogLevel::Error, "%s", nothing.why);
    return nothing;
}

process::CmServer* Instance::cm_server(bool start) {
    if (process::CmServer* existing = cm_.load()) return existing;
    if (!start) return nullptr;
    const std::lock_guard lock(cm_mutex_);
    if (process::CmServer* existing = cm_.load()) return existing;
    Result<std::unique_ptr<process::CmServer>> started = process::CmServer::start(*this);
    if (!started) {
        process::log(process::LogLevel::Error, "rdma_cm: %s", started.error().why);
        errno = started.error().code;
        return nullptr;
    }
    cm_.store(started->release());
    return cm_.load();
}

// Other users' processes may call for it without end: one task at a time, and not soon again.
void Instance::want_cm_server() {
    constexpr Duration kNotAgainFor = std::chrono::seconds(1);
    if (cm_.load() != nullptr) return;
    const std::lock_guard lock(starter_mutex_);
    if (starts_.load() || host().now() < next_start_) return;
    next_start_ = host().now() + kNotAgainFor;
    starter_.reset();  // It has ended.
    starts_.store(true);
    // The caller's thread may be one that closing the device waits for, so it must not start the
    // server itself.
    Rollback ended([this] { starts_.store(false); });
    Result<std::unique_ptr<host::Task>> starter = host().spawn([this] {
        (void)with_memory([this] { cm_server(true); });  // It will be called for again.
        starts_.store(false);
    });
    if (starter) {
        starter_ = std::move(*starter);
        ended.keep();
        return;
    }
    process::log(process::LogLevel::Error, "rdma_cm for another process: %s", starter.error().why);
}

void Instance::on_death() {
    if (process::CmServer* server = cm_.load())
        server->on_death();
    else
        want_cm_server();
}

void Instance::on_interfaces_changed() {
    refresh_contexts(*this);
    if (process::CmServer* server = cm_.load()) server->on_interfaces_changed();
}

void Instance::on_suspects(const cm::Suspects& peers) {
    if (process::CmServer* server = cm_.load()) server->on_suspects(peers);
}

void Instance::at_exit() {
    if (lint != nullptr) lint->look_at_exit();
    if (process::CmServer* server = cm_.load()) server->finish();
    flush();
    finish_state();
    // A thread that has ended is joined, which does not wait: else ThreadSanitizer calls it a leak.
    const std::unique_lock lock(starter_mutex_, std::try_to_lock);
    if (lock.owns_lock() && !starts_.load()) starter_.reset();
}

void Instance::abandon_all() {
    if (process::CmServer* server = cm_.load()) server->abandon();
    abandon();
}

process::Process& process_object() {
    return Instance::get();
}

}  // namespace feroce::verbs
