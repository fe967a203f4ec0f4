// ForkGate: what a forked child must close at once are the descriptors of the port group: one that
// lives on would keep sockets bound, names taken and connections open that nobody serves. It can
// close what objects hold, and objects are whole, only if no other thread of the parent was just
// getting, moving or closing one when it forked. So those threads hold the gate, and a fork waits.
#pragma once

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace feroce::port {

class ForkGate {
public:
    // What holds descriptors.
    class Holder {
    public:
        virtual void abandon() = 0;  // In a forked child: closes all. Takes no lock.

    protected:
        ~Holder() = default;
    };

    // No fork while one lives, but of this thread itself. Never while waiting for anything that can
    // take long.
    class Hold {
    public:
        explicit Hold(ForkGate& gate) : lock_(gate.mutex_) {}
        void end() { lock_.unlock(); }  // Earlier than its life.

    private:
        std::unique_lock<std::recursive_mutex> lock_;
    };

    void add(Holder& holder) {
        const Hold hold(*this);
        holders_.push_back(&holder);
    }
    void remove(Holder& holder) {
        const Hold hold(*this);
        std::erase(holders_, &holder);
    }

    // Around a fork: in the parent both, in the child the first and then abandon(). A thread that
    // was stopped in the middle of something is waited for for `patience`; false: it still holds
    // the gate, and its descriptors stay open in the child.
    bool before_fork(std::chrono::milliseconds patience = kPatience) {
        const auto end = std::chrono::steady_clock::now() + patience;
        // By looks: ThreadSanitizer does not see a lock that waits for a time.
        for (;;) {
            waited_ = mutex_.try_lock();
            if (waited_ || std::chrono::steady_clock::now() >= end) return waited_;
            std::this_thread::sleep_for(kLook);
        }
    }
    void after_fork() {
        if (waited_) mutex_.unlock();
    }
    void abandon() {
        for (Holder* holder : holders_) holder->abandon();
    }

    // Longer than an overloaded machine lets a thread wait for a processor: 1 s was too short.
    static constexpr std::chrono::seconds kPatience{10};

private:
    static constexpr std::chrono::microseconds kLook{50};

    // Recursive: a thread that holds it may call functions that hold it, too.
    std::recursive_mutex mutex_;
    std::vector<Holder*> holders_;  // Guarded by the mutex.
    bool waited_ = false;           // Of the thread that forks: there is one at a time.
};

}  // namespace feroce::port
