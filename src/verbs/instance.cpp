// The one process-wide object: made at first use, leaked, left behind in a forked child.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include "port/real_host.hpp"
#include "verbs/common.hpp"
#include "verbs/contexts.hpp"
#include "verbs/events.hpp"

namespace feroce::verbs {
namespace {

std::atomic<std::uint32_t> generation{1};

// In the child only the forking thread lives: locks may be held for ever, so none is taken.
void in_forked_child() {
    generation.fetch_add(1, std::memory_order_relaxed);
    process::Process* old = process::Process::current();
    process::Process::set_current(nullptr);
    if (old != nullptr) old->abandon();
}

void at_exit() {
    process::Process* process = process::Process::current();
    if (process == nullptr) return;
    process->flush();
    process->finish_state();
}

// An engine spins as fast as its pollers, and each takes one of 63 slots: be modest.
std::uint32_t shards_wanted() {
    const char* wanted = std::getenv("FEROCE_SHARDS");
    const long count =
        wanted != nullptr ? std::strtol(wanted, nullptr, 10) : ::sysconf(_SC_NPROCESSORS_ONLN) / 4;
    return static_cast<std::uint32_t>(std::clamp(count, 1L, 4L));
}

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

process::Process* make_process() {
    port::RealHost::Options options;
    options.devices = environment("FEROCE_DEVICES");
    options.capture_path = environment("FEROCE_PCAP");
    if (const std::string faults = environment("FEROCE_FAULTS"); !faults.empty()) {
        options.faults = port::parse_faults(faults);
        if (!options.faults)
            process::log(process::LogLevel::Error, "FEROCE_FAULTS is not understood: %s",
                         faults.c_str());
    }
    auto host = std::make_unique<port::RealHost>(std::move(options));
    auto* process =
        new process::Process(std::move(host), event_listener(),
                             {.shards = shards_wanted(), .interfaces_changed = refresh_contexts});
    process->export_state([](const void* owner) -> const char* {
        return static_cast<const Qp*>(owner)->base.qp_base.context->device->name;
    });
    return process;
}

}  // namespace

std::uint32_t process_generation() {
    return generation.load(std::memory_order_relaxed);
}

process::Process& process_object() {
    if (process::Process* existing = process::Process::current()) return *existing;
    // Leaked: a child of a fork during the first use would otherwise find it locked.
    static std::mutex& mutex = *new std::mutex;
    static const bool hooked = [] {
        std::atexit(at_exit);
        return ::pthread_atfork(nullptr, nullptr, in_forked_child) == 0;
    }();
    ASSERT(hooked);
    const std::lock_guard lock(mutex);
    if (process::Process* existing = process::Process::current()) return *existing;
    process::Process::set_current(make_process());
    return *process::Process::current();
}

}  // namespace feroce::verbs
