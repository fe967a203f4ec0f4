// Task<T>: a lazy coroutine. It runs when it is awaited, hands its value to its caller by
// symmetric transfer, and ends with its owner. Start one with Loop::run or TaskGroup::spawn.
//
// Limits travel inwards: a task with a deadline or a stop token gives them to everything it awaits,
// so that one `.until()` outside bounds a whole exchange. They add up on the way: an inner limit
// never replaces an outer one. A shielded task is reached by none from outside: for a section that
// must not be left in its middle; where the caller must not wait for its end either, see
// shelter.hpp. Arguments of coroutines are taken by value or must outlive the task.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <stop_token>
#include <utility>
#include <variant>

#include "feroce/frame.hpp"
#include "feroce/limits.hpp"
#include "feroce/time.hpp"

namespace feroce::rdma {

namespace detail {

class PromiseBase : public PooledFrame {
public:
    struct Finish {
        bool await_ready() noexcept { return false; }
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) noexcept {
            return ended.promise().continuation_;
        }
        void await_resume() noexcept {}
    };

    std::suspend_always initial_suspend() noexcept { return {}; }
    Finish final_suspend() noexcept { return {}; }

    const Limits* limits() const { return limits_; }  // Null: none.
    Limits& own_limits() {
        if (!own_) own_.emplace();
        limits_ = &*own_;
        return *own_;
    }
    void shield() { shielded_ = true; }
    void inherit(const Limits* outer) {
        if (outer == nullptr || shielded_) return;
        if (own_)
            own_->add(*outer);
        else
            limits_ = outer;
    }
    void continue_with(std::coroutine_handle<> parent) { continuation_ = parent; }

private:
    std::coroutine_handle<> continuation_ = std::noop_coroutine();
    const Limits* limits_ = nullptr;
    std::optional<Limits> own_;
    bool shielded_ = false;
};

template <class T>
class Promise : public PromiseBase {
public:
    template <class U = T>
    void return_value(U&& value) {
        state_.template emplace<1>(std::forward<U>(value));
    }
    void unhandled_exception() { state_.template emplace<2>(std::current_exception()); }
    T take() {
        if (state_.index() == 2) std::rethrow_exception(std::get<2>(state_));
        return std::move(std::get<1>(state_));
    }

private:
    std::variant<std::monostate, T, std::exception_ptr> state_;
};

template <>
class Promise<void> : public PromiseBase {
public:
    void return_void() {}
    void unhandled_exception() { exception_ = std::current_exception(); }
    void take() {
        if (exception_) std::rethrow_exception(exception_);
    }

private:
    std::exception_ptr exception_;
};

// The limits of a coroutine that awaits something; null for coroutines that are no tasks.
template <class Promise>
const Limits* limits_of(std::coroutine_handle<Promise> handle) {
    if constexpr (requires { handle.promise().limits(); })
        return handle.promise().limits();
    else
        return nullptr;
}

}  // namespace detail

template <class T = void>
class [[nodiscard]] Task {
public:
    // NOLINTNEXTLINE(readability-identifier-naming): the language's name.
    class promise_type : public detail::Promise<T> {
    public:
        Task get_return_object() {
            return Task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
    };

    Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Task& operator=(Task&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Task() {
        if (handle_) handle_.destroy();
    }

    // Before it is started: what it awaits fails with ETIMEDOUT from then on.
    Task until(Instant deadline) && {
        handle_.promise().own_limits().add(deadline);
        return std::move(*this);
    }
    // Before it is started: what it awaits fails with ECANCELED once a stop is requested.
    Task with(const std::stop_token& stop) && {
        handle_.promise().own_limits().add(stop);
        return std::move(*this);
    }
    // Before it is started: limits of the caller do not reach it; its own do.
    Task shielded() && {
        handle_.promise().shield();
        return std::move(*this);
    }

    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> parent) {
        handle_.promise().inherit(detail::limits_of(parent));
        handle_.promise().continue_with(parent);
        return handle_;
    }
    T await_resume() { return handle_.promise().take(); }

    // For what drives tasks: Loop::run, Shelter.
    void start() { handle_.resume(); }
    bool done() const { return handle_.done(); }
    // Where it goes on when it has ended; returns the task itself, to be resumed.
    std::coroutine_handle<> continue_with(std::coroutine_handle<> next) {
        handle_.promise().continue_with(next);
        return handle_;
    }

private:
    explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

    std::coroutine_handle<promise_type> handle_;
};

}  // namespace feroce::rdma
