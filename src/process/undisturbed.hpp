// Undisturbed: the parts of a blocking call that do not wait. While one lives, this thread is not
// cancelled and runs none of the program's signal handlers: a handler may leave the call by
// siglongjmp(), and must not take a lock of ours with it. Between such parts the call holds nothing
// and waits, a handler runs, and a cancellation may end it.
#pragma once

#include <pthread.h>
#include <signal.h>

#include "base/annotate.hpp"
#include "process/waiting.hpp"

namespace feroce::process {

class Undisturbed {
public:
    // Fibers share a thread, and must not hand its settings to each other. A call that `waits` for
    // some objects only leaves signals alone for the others: it is then like one that never does.
    explicit Undisturbed(bool waits = true)
        : real_(waiter.load(std::memory_order_relaxed) == nullptr), blocks_(waits) {
        if (!real_) return;
        ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_);
        if (blocks_) block();
    }
    ~Undisturbed() {
        if (!real_) return;
        if (blocks_) ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
        ::pthread_setcancelstate(state_, nullptr);
    }
    Undisturbed(const Undisturbed&) = delete;
    Undisturbed& operator=(const Undisturbed&) = delete;

    // Sleeps until `change` is notified; the program's signals come through meanwhile.
    void sleep(Change& change, std::unique_lock<std::mutex>& lock) {
        const std::uint32_t seen = change.expect();
        lock.unlock();
        ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
        change.sleep(seen);
        block();
        lock.lock();
    }

private:
    void block() {
        sigset_t most;
        ::sigfillset(&most);
        // What a thread does to itself: blocked, these would kill the process.
        for (const int own : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT})
            ::sigdelset(&most, own);
        ::pthread_sigmask(SIG_BLOCK, &most, &mask_);
    }

    annotate::OwnCalls own_;
    bool real_;
    bool blocks_;  // Without it there is no sleep().
    int state_ = PTHREAD_CANCEL_ENABLE;
    sigset_t mask_;  // The program's.
};

// `holds` is asked under the lock.
template <class Condition>
void wait_until(Undisturbed& call, Change& change, std::unique_lock<std::mutex>& lock,
                Condition holds) {
    Waiter* fibers = waiter.load(std::memory_order_relaxed);
    while (!holds()) {
        if (fibers == nullptr) {
            call.sleep(change, lock);
            continue;
        }
        lock.unlock();
        fibers->wait_a_while();
        lock.lock();
    }
}

}  // namespace feroce::process
