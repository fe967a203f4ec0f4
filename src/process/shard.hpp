// Shard: one engine, its port and the lock that guards both, and the loop that drives them.
//
// Threads of the program drive the engine themselves: they post under the lock, and poll under it
// if it is free. The shard's own thread sleeps in the port and drives when no thread of the program
// polls. Which of them takes an arrival, and when the port wakes the thread, is decided by
// DrivePolicy; the shard tells it what happens and does what it answers.
//
// A thread that takes packets from the port runs the engine before the completions of these packets
// can be seen. So they are acknowledged by then, and the program may end in any way after that
// (docs/adr/0015-acknowledge-first.md).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "device/engine.hpp"
#include "host/host.hpp"
#include "process/copy_inbox.hpp"
#include "process/drive_policy.hpp"
#include "process/linger_policy.hpp"
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
        const std::function<void(const cm::Suspects&)>& suspects_told;
        std::size_t held_bytes_max = 0;  // See device::Engine::Config.
    };

    static Result<std::unique_ptr<Shard>> start(const Parts& parts);
    ~Shard();  // Ends the thread. Queue pairs must be gone.

    // What we owe the peer may wait for the program's answer (DrivePolicy). It leaves with what the
    // program posts, keeps waiting while it posts receives, and leaves before any other change: a
    // queue pair that is destroyed sends nothing more.
    // Mail is a change whose maker then fetches the connection manager's messages.
    enum class Work : std::uint8_t { Changes, Posts, Receives, Mail };

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
        bool changes() const { return work_ == Work::Changes || work_ == Work::Mail; }

        Shard& shard_;
        Work work_;
        Instant now_;
        bool in_flight_ = false;  // Something was, before the holder posted.
    };

    // Makes progress for a thread that polls `cq`; returns at once if another thread does.
    void drive(device::CompletionQueue& cq);
    void expect_sleep();  // The program asked for an event, and is about to sleep.
    // Then a poller may return completions without driving: the next arrival wakes the thread.
    bool armed() const { return armed_.load(std::memory_order_relaxed); }
    // A thread polls. Two at once may count as one.
    void note_poll() {
        polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    void pass();  // Waits until the thread that drives now has let go.
    void forget(const device::CompletionQueue& cq);  // It is about to be destroyed.
    // Waits until nothing is on its way into far memory for the queue pair, which goes to ERR if
    // something is: it is about to be destroyed or reset, or is in ERR. Drives meanwhile.
    void end_copies(transport::QueuePair& qp);
    // Waits until all copies into far memory that have begun are over: the receives of an SRQ that
    // is destroyed belong to queue pairs that live on. Drives meanwhile.
    void end_deliveries();
    void flush();  // At exit: sends what is owed, unless the lock cannot be had soon.
    // Shows the engine under the lock; false if the lock cannot be had within `patience`.
    bool inspect(Duration patience, const std::function<void(device::Engine&)>& look);

    // For the connection manager, whose messages are completions of a queue pair here. `bring`
    // fetches them, on the shard's thread and without its lock: the manager's comes first. Empty:
    // no longer; waits for a call that has begun.
    void serve_mail(std::function<void()> bring);
    // Under the lock, when a message has come. True: the caller must tell the manager; else the
    // thread that took it from the port fetches it.
    bool note_mail();
    // See host::HostPort.
    SlotNumber slot() const { return port_->slot(); }
    int requests_fd();
    bool poll_requests();
    void take_arrived();  // What lies in the port now, unless it is very much.

private:
    explicit Shard(const Parts& parts) : parts_(parts) {}
    // Of the shard's thread.
    void body();
    void look_at_interfaces();
    void look_at_suspects();
    void bring_mail();
    void body_turn();
    void look_around();
    void linger();
    // When to look again, and how many polls were counted until now. Instant{}: there is more to
    // do.
    Instant drive_until_idle(std::uint64_t& polls);
    bool left_to_program();  // An arrival that woke the thread.
    // Under the lock.
    bool ends_copies(transport::QueuePair& qp);
    bool delivers_before(mem::CopyToken& end);
    bool drive_locked(device::CompletionQueue& cq);  // True: the caller should give up its core.
    bool receive(Instant now);
    bool take_copies(Instant now);   // That are over.
    void note_arrival(Instant now);  // That the thread took.
    DrivePolicy::Debt debt(Instant now, bool received, bool asks_for_acks) const;
    void send_pending(Instant now);
    void wake_if_late(Instant now);
    void wake_thread(Instant at);
    DrivePolicy::Situation situation(Instant now) const;
    void apply(DrivePolicy::Arming arming);
    void copies_ended();  // By any thread, without the lock.

    Parts parts_;
    Lock lock_;  // Guards engine_, policy_ and the port, but for its wait() and wake().
    std::unique_ptr<host::HostPort> port_;
    CopyInbox copies_{[this] { copies_ended(); }};
    std::unique_ptr<device::Engine> engine_;
    DrivePolicy policy_;
    // Who takes packets from the port now, and hence who sees to the manager's messages.
    enum class Taker : std::uint8_t { Program, Thread, Manager };
    Taker taker_ = Taker::Program;
    bool mail_served_ = false;
    // Written under the lock, and by the thread when the port has disarmed itself. Read without, as
    // are the next two: they are hints, hence relaxed. But the end of a copy and the arming must
    // not miss each other: see copies_ended().
    std::atomic<bool> armed_{false};
    std::atomic<std::uint64_t> polls_{0};
    std::atomic<Instant> thread_sleeps_until_{Instant{}};
    // Set once; the wake-up that follows orders it.
    std::atomic<bool> stop_{false};
    bool look_again_ = false;  // Of the thread: interfaces have changed and nobody knows yet.
    // The thread's own.
    int busy_turns_ = 0;  // In a row.
    LingerPolicy linger_policy_;
    bool lingers_ = false;                // Nothing is there; it looks again and does not sleep.
    std::uint64_t polls_at_arrival_ = 0;  // Of the program, when the thread last took packets.
    bool mail_waits_ = false;             // It took messages of the connection manager.
    std::mutex mail_mutex_;               // Guards the next; held while it is called.
    std::function<void()> bring_;
    std::unique_ptr<host::Task> thread_;
};

}  // namespace feroce::process
