// See guard.hpp. The handler runs on any thread at any time: it reads only constants, the fix-up
// table and what was stored before it was installed, and it calls nothing but sigaction, raise and
// pthread_sigmask.
#include "mem/guard.hpp"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstddef>
#include <type_traits>

#include "base/assert.hpp"
#include "mem/guard_thread.hpp"

namespace feroce::mem {

namespace {

struct FixUp {  // Distances from each field to the code it names; written by word.hpp.
    std::int32_t first;
    std::int32_t end;
    std::int32_t landing;
};

std::uintptr_t target(const std::int32_t& field) {
    return reinterpret_cast<std::uintptr_t>(&field) + static_cast<std::uintptr_t>(field);
}

}  // namespace

// The linker sets these around the section, for each program or shared library on its own.
extern "C" {
extern const FixUp __start_feroce_fix_ups[] __attribute__((visibility("hidden")));
extern const FixUp __stop_feroce_fix_ups[] __attribute__((visibility("hidden")));
}

std::atomic<std::uint32_t> guard_epoch{1};
constinit thread_local std::uint32_t guard_thread_epoch = 0;
std::atomic<const Watch*> guard_watch{nullptr};
constinit thread_local std::uint32_t guard_watched_epoch = 0;

namespace {

struct Previous {
    int signal;
    struct sigaction action {};      // Written before our handler is installed, then constant.
    std::atomic<bool> spent{false};  // It was SA_RESETHAND and has run.
};

Previous previous[] = {{SIGSEGV}, {SIGBUS}};

Previous& previous_of(int signal) {
    return signal == SIGSEGV ? previous[0] : previous[1];
}

bool jump_to_fix_up(ucontext_t& context) {
#if defined(__x86_64__)
    auto& pc = context.uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    auto& pc = context.uc_mcontext.pc;
#endif
    const auto at = static_cast<std::uintptr_t>(pc);
    for (const FixUp* f = __start_feroce_fix_ups; f != __stop_feroce_fix_ups; ++f) {
        if (at < target(f->first) || at >= target(f->end)) continue;
        pc = static_cast<std::remove_reference_t<decltype(pc)>>(target(f->landing));
        return true;
    }
    return false;
}

void die_by(int signal, bool was_sent) {
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    sigaction(signal, &standard, nullptr);
    // A fault repeats when we return, and then kills at its own place; a sent signal does not.
    if (was_sent) raise(signal);
}

void hand_on(int signal, siginfo_t* info, void* context) {
    Previous& old = previous_of(signal);
    const int flags = old.action.sa_flags;
    const bool was_sent = info->si_code <= 0;
    const bool plain = (flags & SA_SIGINFO) == 0;
    if (plain && old.action.sa_handler == SIG_IGN && was_sent) return;
    const bool nobody =
        plain && (old.action.sa_handler == SIG_DFL || old.action.sa_handler == SIG_IGN);
    const bool once = (flags & static_cast<int>(SA_RESETHAND)) != 0;
    if (nobody || (once && old.spent.exchange(true))) return die_by(signal, was_sent);

    // The mask that the kernel would have set for it; our return takes it back.
    sigset_t self;
    sigemptyset(&self);
    sigaddset(&self, signal);
    pthread_sigmask(SIG_BLOCK, &old.action.sa_mask, nullptr);
    if ((flags & SA_NODEFER) != 0) pthread_sigmask(SIG_UNBLOCK, &self, nullptr);
    if (plain) {
        old.action.sa_handler(signal);
    } else {
        old.action.sa_sigaction(signal, info, context);
    }
}

void on_signal(int signal, siginfo_t* info, void* context) {
    // si_code > 0: the kernel says so, not another process that merely hit us at this instruction.
    if (info->si_code > 0 && jump_to_fix_up(*static_cast<ucontext_t*>(context))) return;
    hand_on(signal, info, context);
}

bool install() {
    for (Previous& p : previous) {
        // First look, then replace: the handler must find the old one as soon as it can run.
        ASSERT(sigaction(p.signal, nullptr, &p.action) == 0);
        struct sigaction ours {};
        ours.sa_sigaction = on_signal;
        sigemptyset(&ours.sa_mask);
        // ONSTACK: a program that catches its stack overflows must go on catching them.
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (p.action.sa_flags & SA_RESTART);
        ASSERT(sigaction(p.signal, &ours, nullptr) == 0);
    }
    return true;
}

bool handlers_are_ours() {
    for (const Previous& p : previous) {
        struct sigaction now {};
        ASSERT(sigaction(p.signal, nullptr, &now) == 0);
        if ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != on_signal) return false;
    }
    return true;
}

bool thread_blocks_signals() {
    sigset_t mask;
    ASSERT(pthread_sigmask(SIG_BLOCK, nullptr, &mask) == 0);
    return sigismember(&mask, SIGSEGV) == 1 || sigismember(&mask, SIGBUS) == 1;
}

}  // namespace

void guard_install() noexcept {
    [[maybe_unused]] static const bool installed = install();
}

void set_watch(const Watch& watch) noexcept {
    guard_watch.store(&watch, std::memory_order_relaxed);
    // As in guard_recheck(): threads that are remembered as Direct look again.
    guard_epoch.fetch_add(2, std::memory_order_release);
}

GuardMode guard_look() noexcept {
    guard_install();
    // Before the look: if another thread finds the handler lost meanwhile, ours does not count.
    const std::uint32_t epoch = guard_epoch.load(std::memory_order_acquire);
    guard_thread_epoch = guard_watched_epoch = 0;
    if (!handlers_are_ours()) return GuardMode::Kernel;
    if (thread_blocks_signals()) return GuardMode::Unmasked;
    // relaxed: a watch is set before a device is opened.
    const bool watched = guard_watch.load(std::memory_order_relaxed) != nullptr;
    (watched ? guard_watched_epoch : guard_thread_epoch) = epoch;
    return GuardMode::Direct;
}

GuardMode guard_recheck() noexcept {
    const GuardMode mode = guard_look();
    // release: pairs with guard_look's acquire. Steps of 2 from 1 never reach 0, the "none".
    if (mode == GuardMode::Kernel) guard_epoch.fetch_add(2, std::memory_order_release);
    return mode;
}

namespace {
// initial-exec as guard_thread_epoch: every poll asks.
constinit thread_local Instant last_recheck __attribute__((tls_model("initial-exec"))) = Instant{};
}  // namespace

void guard_keep_fresh(Instant now) noexcept {
    // How soon we notice that the program replaced a handler or that a thread changed its mask.
    constexpr Duration kRecheck = std::chrono::milliseconds(5);
    const bool fresh = now >= last_recheck && now - last_recheck <= kRecheck;
    if (fresh) return;  // Simulated clocks start again.
    last_recheck = now;
    guard_recheck();
}

}  // namespace feroce::mem
