// Loop: drives everything of one thread: completion queues, connection events, timers, messages
// from other threads, and the coroutines that wait for any of them. Nothing of it is hidden: no
// threads, no clock but the Runtime's. A loop outlives what is made with it.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "feroce/cm_event.hpp"
#include "feroce/error.hpp"
#include "feroce/runtime.hpp"
#include "feroce/suspension.hpp"
#include "feroce/task.hpp"

namespace feroce::rdma {

class CompletionQueue;
class PolledQueue;
class TaskGroup;

// What a loop asks for news in every round: a completion queue, or something else with a queue of
// its own, such as io_uring.
class Source {
public:
    virtual bool poll() = 0;         // Tells waiters of what has come; true if there was any.
    virtual void arm() = 0;          // Called before the loop waits, and poll() once more then:
    virtual int fd() const = 0;      // what comes later makes this readable,
    virtual void take_events() = 0;  // until this.

protected:
    ~Source() = default;
};

// A binary heap of armed timers; grows, and otherwise allocates nothing.
class TimerHeap {
public:
    void insert(Timer& timer, Instant at);
    void remove(Timer& timer);
    bool fire(Instant now);  // True if one had expired. Timers armed meanwhile wait for the next.
    Instant next() const { return heap_.empty() ? kNever : heap_.front()->at_; }

private:
    void place(std::size_t index, Timer& timer);
    void sift(std::size_t index);

    std::vector<Timer*> heap_;
};

class Loop {
public:
    struct Options {
        // How long an idle loop polls before it waits in the kernel. Longer: lower latency, busier
        // processor. It grows up to the limit as long as the news that ends the wait comes within
        // that limit: then waiting costs more than it spares.
        Duration spin = std::chrono::microseconds(20);
        Duration spin_limit = std::chrono::microseconds(200);
        // Of the completion queues that it makes itself: loops on different processors want
        // different ones. Any number; devices have few.
        std::uint32_t vector = 0;
    };

    Loop();  // With a RealRuntime of its own.
    explicit Loop(Runtime& runtime);
    Loop(Runtime& runtime, Options options);
    ~Loop();
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    Runtime& runtime() { return runtime_; }
    const Options& options() const { return options_; }
    Instant now() { return runtime_.now(); }
    Instant after(Duration time) { return now() + time; }
    // The time, read once a round however many ask: for timers, statistics, and what else need not
    // know how long the round has lasted.
    Instant round_time() {
        if (!in_round_) return now();
        if (round_time_ == kNever) round_time_ = now();
        return round_time_;
    }

    // One round without waiting; true if anything happened. What user code throws (a posted
    // function, a spawned task, a callback) disturbs nothing else of the round: it comes out of the
    // outermost poll() when the round is over, one exception at a time, or goes to the handler that
    // was set.
    bool poll();
    void on_exception(std::function<void(std::exception_ptr)> handler) {
        on_exception_ = std::move(handler);
    }
    // True: the caller is called by a round, and what is put off to its end is not put off for
    // long.
    bool in_round() const { return in_round_; }
    // A round that waits, at most until then, if there is nothing to do.
    void poll_or_wait(Instant until = kNever);
    // The same for loops of this thread, at least one: they sleep if none of them has anything to
    // do, in the runtime of the first and without spinning. A post to any of them ends that, and a
    // wake() of the first one's runtime.
    static void poll_or_wait_all(std::span<Loop* const> loops);
    // Drives everything until the task has ended: the blocking form of whatever it awaits.
    template <class T>
    T run(Task<T> task) {
        task.start();
        while (!task.done()) poll_or_wait();
        return task.await_resume();
    }
    // Drives everything until stop(): what a server's main does. StopSignals calls it for signals.
    void run();
    // Any thread, also a signal's handler. Before run(): that returns at once.
    void stop() noexcept;
    // This thread has polled, saw in memory what it waited for, and may not poll again soon: what
    // arrives meanwhile must not wait for it. A soft device serves others by the threads that poll.
    void rest();
    // Runs beside everything, at most as long as the loop.
    void spawn(Task<void> task);
    // Any thread. Allocates; a Message does not.
    void post(std::function<void()> work);

    class Sleep;
    Sleep sleep_until(Instant when);
    Sleep sleep(Duration time);
    // Lets everything else that is ready run first: co_await loop.yield(). So does a sleep that is
    // over already.
    Sleep yield();

    // For what is built on loops.
    Result<rdma_event_channel*> cm_channel();
    void attach(Source& source);
    void detach(Source& source);
    bool has(const Source& source) const;
    // One queue for all connections of a device that want no other: one to poll instead of many.
    // Null if the device refuses.
    PolledQueue* common_queue(ibv_context* device);
    void make_ready(Suspension& waiting) { ready_.push_back(waiting); }
    void throw_later(std::exception_ptr exception) { exceptions_.push_back(std::move(exception)); }
    // Calls user code: what it throws is kept for the end of the round.
    template <class Function>
    void contain(Function&& call) {
        try {
            call();
        } catch (...) {
            throw_later(std::current_exception());
        }
    }

private:
    friend class Timer;
    friend class Message;
    friend class Deferred;
    class Asleep;

    explicit Loop(Runtime* own);
    Loop(std::unique_ptr<Runtime> own, Runtime& runtime, Options options);

    void push(Message& message);
    void withdraw(Message& message);
    void fetch_mail();
    bool deliver_mail();
    bool poll_sources();
    bool poll_cm();
    bool resume_ready();
    void run_deferred();
    void tell_exceptions();
    static void wait_for_news(std::span<Loop* const> loops, Instant until);
    bool arm_sources();  // True if there is news after all.
    void add_fds(std::vector<int>& fds) const;
    bool has_work() const;
    void await_posters() const;

    std::unique_ptr<Runtime> own_runtime_;
    Runtime& runtime_;
    const Options options_;
    TimerHeap timers_;
    List<Suspension> ready_;
    List<Suspension>
        resuming_;  // Of the round; a member, so that a call that blocks in it goes on.
    List<Deferred> deferred_;
    // Posted messages, newest first. Release when pushed, acquire when taken: a message's content
    // is seen by its delivery.
    std::atomic<Message*> mail_ = nullptr;
    List<Message> inbox_;       // Taken off mail_, oldest first.
    List<Message> delivering_;  // Of the round; a member for the same reason.
    // The runtime in whose wait the loop sleeps: its own, or that of the first of several loops.
    // Null: it does not. Sequentially consistent with mail_: either the poster sees the sleeper, or
    // the sleeper the mail.
    std::atomic<Runtime*> sleeping_in_ = nullptr;
    // Threads that are posting. They touch the loop even after their message was delivered, which
    // may be what lets the loop end. Up before the message is pushed, down with release when
    // nothing more is touched. Sequentially consistent with sleeping_in_: once that is null and
    // nobody is posting, no thread touches the runtime that it named.
    std::atomic<unsigned> posting_ = 0;
    std::vector<Source*> sources_;
    rdma_event_channel* cm_channel_ = nullptr;
    Instant next_cm_look_{};
    Instant idle_since_ = kNever;
    bool in_round_ = false;          // What is called now need not wait long for its end.
    Instant round_time_ = kNever;    // kNever: not read yet.
    Duration spin_ = options_.spin;  // As it has grown.
    std::vector<std::pair<ibv_context*, std::unique_ptr<CompletionQueue>>> common_queues_;
    std::vector<int> fds_;
    std::vector<std::exception_ptr> exceptions_;  // Not told yet, oldest first.
    std::function<void(std::exception_ptr)> on_exception_;
    std::atomic<bool> stopping_ = false;  // Release with acquire: what came before stop() is seen.
    std::unique_ptr<TaskGroup> background_;  // Ends first: its tasks use the rest.
};

// co_await loop.sleep(1ms): fails only with ETIMEDOUT of an outer limit or ECANCELED.
class [[nodiscard]] Loop::Sleep : public Limited<Loop::Sleep> {
public:
    Sleep(Loop& loop, Instant when);

    // For Awaiter: false if it is done already.
    bool start(std::coroutine_handle<> handle, const Limits* outer);
    Result<> result();

private:
    Instant when_;
    Instant limit_ = kNever;
};

}  // namespace feroce::rdma
