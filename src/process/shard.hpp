// Shard: one engine, its port and its lock, and who drives them. Application threads drive inline:
// they post under the lock and poll under a try-lock. One thread of ours sleeps in the port and
// takes over when nobody polls.
//
// Pollers and the thread keep out of each other's way like this: a poller that finds nothing twice
// in a row disarms the port, so that arrivals do not wake the thread. It arms it again before it
// returns a completion if the program may then poll memory or sleep: we doubt until it has come
// back often enough, and again as soon as the thread had to take an arrival for it. Was it needed?
// A program that is busy with a batch would have come back; the thread finds out by leaving an
// arrival to it, ever more seldom if in vain. A program that asks for a completion event is about
// to sleep: armed until the next completion. A poller that just stops is noticed by the thread,
// which looks every millisecond as long as somebody polled lately.
//
// What we owe a peer is best sent together with what the program sends next: one packet on the
// way instead of two, and the peer's poller finds both at once. So where programs were seen to
// answer arrivals with posts, acknowledgements wait for the answer, but not for long.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "device/engine.hpp"
#include "host/host.hpp"
#include "process/lock.hpp"

namespace feroce::process {

// How long an exiting process waits for a lock: longer than a busy machine keeps its holder away.
constexpr Duration kExitPatience = std::chrono::milliseconds(500);

class Shard {
public:
    struct Parts {
        host::Host& host;
        mem::Memory& memory;
        device::XrcDomains& xrc;
        device::EventListener& events;
        const std::function<void()>& interfaces_changed;
    };

    static Result<std::unique_ptr<Shard>> start(const Parts& parts);
    ~Shard();  // Ends the thread. Queue pairs must be gone.

    // What we owe the peer may wait for the program's answer (see drive_locked). It leaves with
    // what the program posts, keeps waiting while it posts receives, and leaves before any other
    // change: a queue pair that is destroyed sends nothing more.
    enum class Work : std::uint8_t { Changes, Posts, Receives };

    // The lock, held. Whatever the holder causes to be sent leaves when it lets go.
    class Session {
    public:
        explicit Session(Shard& shard, Work work = Work::Changes);
        ~Session();
        Session(const Session&) = delete;
        Session& operator=(const Session&) = delete;
        device::Engine& engine() { return *shard_.engine_; }
        Instant now() const { return now_; }

    private:
        Shard& shard_;
        Work work_;
        Instant now_;
    };

    // Makes progress for a thread that polls `cq`; returns at once if another thread does.
    void drive(device::CompletionQueue& cq);
    void expect_sleep();  // The program asked for an event: arrivals are the thread's.
    // A poller may return completions without driving: no arrival would go unseen after.
    bool armed() const { return armed_.load(std::memory_order_relaxed); }
    // Somebody polls. Two at once may count as one.
    void note_poll() {
        polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    void pass();   // Waits until whoever drives now has let go.
    void flush();  // At exit: sends what is owed, unless the lock cannot be had soon.
    // Shows the engine under the lock; false if the lock cannot be had within `patience`.
    bool inspect(Duration patience, const std::function<void(device::Engine&)>& look);

    // For the connection manager; see host::HostPort.
    std::uint8_t slot() const { return port_->slot(); }
    int requests_fd();
    bool poll_requests();
    void take_arrived();  // What lies in the port now, unless it is very much.

private:
    explicit Shard(const Parts& parts) : parts_(parts) {}
    void body();
    void body_turn();
    void drive_locked(device::CompletionQueue& cq);
    bool try_to_drive();  // True: the lock is ours.
    void note_needed();
    bool program_comes_back();
    bool trial_is_due(std::uint64_t& polls);
    void conclude_trial(bool came_back);
    void note_arrival(Instant now);
    void note_post(Instant now);
    bool answer_expected(Instant now) const;
    bool receive(Instant now);
    bool run_engine(Instant now, bool received);  // False if there was no reason to.
    void send_pending(Instant now);
    void wake_if_late(Instant now);
    void arm();
    void disarm(Instant now);

    Parts parts_;
    Lock lock_;  // Guards engine_ and all that is not atomic.
    std::unique_ptr<host::HostPort> port_;
    std::unique_ptr<device::Engine> engine_;
    std::uint32_t empty_polls_ = 0;
    // Completions still to be returned with the port armed: see the head of this file.
    int doubts_ = 64;
    bool returned_completion_ = false;  // And nobody has polled since.
    // How many arrivals from now, and after the next one, an arrival is left to the program.
    int arrivals_to_trial_ = 1;
    int trial_gap_ = 1;
    bool watched_ = false;         // Armed since it was last disarmed for long.
    bool sleep_expected_ = false;  // An event was asked for, and no completion returned since.
    // How often of late a post followed an arrival closely, up to kAnswersNeeded.
    int answers_ = 0;
    bool unanswered_ = false;  // Something arrived that we owe an answer, and no post followed.
    Instant arrived_at_{};
    Instant last_empty_poll_{};
    Instant last_recheck_{};
    // Read without the lock, and the second also written so, as hints only, hence relaxed.
    std::atomic<bool> armed_{false};
    std::atomic<std::uint64_t> polls_{0};
    std::atomic<Instant> thread_sleeps_until_{Instant{}};
    // Fairness of the lock, hints as well.
    std::atomic<int> waiting_{0};
    std::atomic<int> yields_{0};
    std::atomic<unsigned> failures_{0};
    // Set once; the wake-up that follows orders it.
    std::atomic<bool> stop_{false};
    std::uint64_t polls_seen_ = 0;  // The thread's own, as is the next.
    std::uint64_t polls_at_arrival_ = 0;
    std::unique_ptr<host::Task> thread_;
};

}  // namespace feroce::process
