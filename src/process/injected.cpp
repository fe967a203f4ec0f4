#include "process/injected.hpp"

#include <unistd.h>

#include <memory>
#include <utility>

#include "base/environment.hpp"
#include "base/shortage.hpp"
#include "process/process.hpp"

namespace feroce::process {
namespace {

using detail::FaultsKnown;

// All of this outlives a fork: it says what the environment said. Made by the loader, so that no
// fork finds it half made.
constinit std::atomic<CallFaults*> faults{nullptr};  // Owned, never freed. Released when complete.
// Whose calls are counted: a forked child, which has one thread at first, counts from the start.
constinit std::atomic<pid_t> counted{0};

std::unique_ptr<CallFaults> read_environment() {
    const char* text = environment("FEROCE_FAULTS");
    if (text == nullptr) return nullptr;
    std::unique_ptr<CallFaults> out;
    // Without memory for it there are no faults: the program has worse to deal with.
    (void)with_memory([&] {
        Result<FaultPlan> plan = plan_faults(text);
        if (plan && !plan->calls.empty()) out = std::make_unique<CallFaults>(std::move(*plan));
    });
    return out;
}

// Of two threads that read it at once one keeps what it has read.
void find_out() {
    std::unique_ptr<CallFaults> wanted = read_environment();
    const bool some = wanted != nullptr;
    CallFaults* none = nullptr;
    if (some && faults.compare_exchange_strong(none, wanted.get())) (void)wanted.release();
    detail::faults_known.store(some ? FaultsKnown::Some : FaultsKnown::None);
}

}  // namespace

namespace detail {

constinit std::atomic<FaultsKnown> faults_known{FaultsKnown::NotYet};

CallFaults* find_call_faults() {
    if (faults_known.load() == FaultsKnown::NotYet) find_out();
    CallFaults* out = faults.load();
    if (out == nullptr) return nullptr;
    const pid_t self = ::getpid();
    if (const pid_t before = counted.exchange(self); before != self && before != 0) out->restart();
    return out;
}

}  // namespace detail

InjectedFailure fail_call(const char* call) {
    CallFaults* wanted = call_faults();
    if (wanted == nullptr) return {};
    const CallFaults::Verdict verdict = wanted->next(call);
    if (Process* process = Process::current(); verdict.event && process != nullptr)
        process->raise_fault(*verdict.event, verdict.call);
    return {verdict.call, {verdict.error, kInjected}};
}

}  // namespace feroce::process
