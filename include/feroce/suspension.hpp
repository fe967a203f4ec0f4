// Suspension: a coroutine that waits, with its deadline and stop token. What one awaits derives
// from it: Signal::Wait, Loop::Sleep, Transfer. It lies in the frame of the coroutine, so waiting
// allocates nothing. It is in one list at a time: of what waits for something, or of what may go
// on.
#pragma once

#include <atomic>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <optional>
#include <stop_token>
#include <type_traits>

#include "feroce/list.hpp"
#include "feroce/task.hpp"
#include "feroce/time.hpp"

namespace feroce::rdma {

class Loop;

// Calls `expired` on the loop's thread once its time has come. Leaves the loop when it ends.
class Timer {
public:
    Timer(Loop& loop, void (*on_expiry)(Timer&)) : loop_(loop), expired_(on_expiry) {}
    ~Timer() { cancel(); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    void arm(Instant at);  // Moves one that is armed.
    void cancel();
    bool armed() const { return index_ != kIdle; }
    Instant at() const { return at_; }

private:
    friend class TimerHeap;
    static constexpr std::size_t kIdle = ~std::size_t{0};

    Loop& loop_;
    void (*expired_)(Timer&);
    Instant at_ = kNever;
    std::size_t index_ = kIdle;  // In the loop's heap.
};

// Something to do on a loop's thread, posted from any thread. Posted again before it is delivered,
// it is delivered once. It may end while posted, on the loop's thread.
class Message : public ListNode {
public:
    Message(Loop& loop, void (*on_delivery)(Message&)) : loop_(loop), deliver_(on_delivery) {}
    ~Message();

    void post();  // Any thread.

private:
    friend class Loop;

    Loop& loop_;
    void (*deliver_)(Message&);
    Message* below_ = nullptr;  // In the stack of posted ones; written before it is published.
    std::atomic<bool> posted_ = false;
};

// Something to do on the loop before its round ends, once however often it was asked for: what
// gathers during a round is handed to the device together. Leaves the loop when it ends.
class Deferred : public ListNode {
public:
    Deferred(Loop& loop, void (*on_round_end)(Deferred&)) : loop_(loop), run_(on_round_end) {}

    void schedule();

private:
    friend class Loop;

    Loop& loop_;
    void (*run_)(Deferred&);
};

class Suspension;

namespace detail {

// Called where a coroutine or a blocking call begins to wait, so that a test can cancel it there.
// Null in programs. Set while no other thread runs.
inline void (*at_suspension)(Suspension&) = nullptr;

}  // namespace detail

class Suspension : public ListNode {
public:
    Suspension(const Suspension&) = delete;
    Suspension& operator=(const Suspension&) = delete;

    Loop& loop() const { return loop_; }
    bool done() const { return done_; }

protected:
    // A limit ends the wait, with its code().
    explicit Suspension(Loop& loop);
    // `interrupt` is called with ETIMEDOUT or ECANCELED and sees to it that finish() is called.
    Suspension(Loop& loop, void (*interrupt)(Suspension&, int code));
    ~Suspension() = default;

    Limits& limits() { return own_; }
    // Limits of the awaiting task do not reach it.
    void shield() { shielded_ = true; }
    Instant deadline_within(const Limits* outer) const;
    Instant after(Duration time) const;
    // Why it ended early: ETIMEDOUT or ECANCELED; 0 if it did not.
    int code() const { return code_; }
    void set_code(int code) { code_ = code; }

    // Starts to wait. Returns 0, or ETIMEDOUT or ECANCELED if that is so already: then nothing
    // watches the limits, and the wait is to finish at once.
    int begin(std::coroutine_handle<> waiting, const Limits* outer);
    bool limited() const { return deadline_.armed() || on_stop_.has_value(); }
    // Waits no more: nothing watches the limits from here on.
    void settle();
    // The coroutine may go on, in the loop's next round.
    void finish();
    void drive();  // Blocks: the loop runs until this is done.

private:
    friend class Loop;
    struct OnStop {
        Message* message;
        void operator()() const { message->post(); }
    };
    struct Deadline : Timer {
        Deadline(Loop& loop, Suspension& of);
        Suspension& owner;
    };
    struct Stop : Message {
        Stop(Loop& loop, Suspension& of);
        Suspension& owner;
    };

    Loop& loop_;
    void (*interrupt_)(Suspension&, int);
    std::coroutine_handle<> waiting_;
    bool done_ = false;
    bool shielded_ = false;
    int code_ = 0;
    Limits own_;
    Deadline deadline_;
    Stop stop_;
    std::optional<std::stop_callback<OnStop>> on_stop_;  // Ends before stop_, which it posts.
};

namespace detail {

// g++ 12 copies what a function returns a reference to and is awaited; this it may copy.
template <class Awaited>
class [[nodiscard]] Forward {
public:
    explicit Forward(Awaited& awaited) : awaited_(awaited) {}

    bool await_ready() { return awaited_.await_ready(); }
    template <class Promise>
    auto await_suspend(std::coroutine_handle<Promise> handle) {
        return awaited_.await_suspend(handle);
    }
    auto await_resume() { return awaited_.await_resume(); }

private:
    Awaited& awaited_;
};

}  // namespace detail

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
// g++ 11 refuses some variables that are their own awaiters, and takes what this gives of them.
template <class Awaited>
requires std::derived_from<std::remove_reference_t<Awaited>, Suspension> &&
    requires(Awaited&& awaited) {
    awaited.await_ready();
}
auto operator co_await(Awaited&& awaited) {
    return detail::Forward<std::remove_reference_t<Awaited>>(awaited);
}
#endif

// What co_await makes of a suspension that lies in the awaiting expression and stays there.
template <class Awaited>
class Awaiter {
public:
    explicit Awaiter(Awaited& awaited) : awaited_(awaited) {}

    bool await_ready() const { return false; }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> handle) {
        return awaited_.start(handle, detail::limits_of(handle));
    }
    auto await_resume() { return awaited_.result(); }

private:
    Awaited& awaited_;
};

// What all that is awaited has in common for the caller.
template <class Self, class Base = Suspension>
class Limited : public Base {
public:
    Awaiter<Self> operator co_await() { return Awaiter<Self>(self()); }
    // The earliest one counts, also of those that the task inherits.
    Self& until(Instant deadline) {
        this->limits().add(deadline);
        return self();
    }
    Self& within(Duration time) { return until(this->after(time)); }
    // Beside the ones that the task inherits.
    Self& with(const std::stop_token& stop) {
        this->limits().add(stop);
        return self();
    }
    // Without the limits that the task inherits.
    Self& shielded() {
        this->shield();
        return self();
    }
    // Blocks, driving the loop; in a coroutine too, without the limits of its task. Calls that
    // block on one thread return in reverse order: the last one first.
    auto wait() {
        if (self().start(nullptr, nullptr)) this->drive();
        return self().result();
    }

protected:
    using Base::Base;

private:
    Self& self() { return static_cast<Self&>(*this); }
};

}  // namespace feroce::rdma
