// Call: something that Python has asked for. It runs in a thread of ours and owns all memory that
// it uses, so the caller may go away at any time. Queue: where the ends of calls are told, to one
// thread of Python or one asyncio loop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "feroce/error.hpp"
#include "feroce/task.hpp"
#include "python/handles.hpp"

namespace feroce::python {

using Bytes = std::vector<std::byte>;

class Queue final : public Object {
public:
    static rdma::Result<std::shared_ptr<Queue>> create();
    ~Queue() override;

    int fd() const { return fd_; }
    void tell(std::uint64_t call);
    // Waits for one, until a signal at the latest. 0: none.
    std::uint64_t take(int milliseconds);

private:
    explicit Queue(int fd) : fd_(fd) {}
    std::uint64_t take_now();

    const int fd_;      // Readable while there are calls.
    std::mutex mutex_;  // Guards the calls, and that the descriptor says so.
    std::deque<std::uint64_t> done_;
};

struct Outcome {
    Outcome() = default;
    Outcome(const rdma::Error& error) : code(error.code), why(error.why) {}
    template <class T>
    Outcome(const rdma::Result<T>& result) {
        if (!result) *this = Outcome(result.error());
    }

    int code = 0;  // 0, or an errno.
    std::string why;
    std::uint64_t value = 0;
    Bytes data;
    std::shared_ptr<Object> made;
};

class Call final : public Object {
public:
    // Null if there is no such queue. Has a handle from then on.
    static std::shared_ptr<Call> create(std::uint64_t queue);

    std::uint64_t handle() const { return handle_; }
    std::stop_token stop() const { return stop_.get_token(); }

    // In the thread that does it, once. False: it was given up, and what it brought is to be
    // undone.
    bool finish(Outcome outcome);
    bool finished() const { return state_.load(std::memory_order_acquire) == State::Done; }
    // Any thread. False: it was done before, and has its outcome; what it brought is the caller's.
    bool cancel();
    // Null while it is not done.
    const Outcome* outcome() const { return finished() ? &outcome_ : nullptr; }
    // The handle of what was made; 0 if nothing was.
    std::uint64_t made();

private:
    // Done is stored with release, after the outcome; readers acquire.
    enum class State : std::uint8_t { Runs, Tells, Cancelled, Done };

    explicit Call(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}

    const std::shared_ptr<Queue> queue_;
    std::uint64_t handle_ = 0;
    std::stop_source stop_;
    std::atomic<State> state_ = State::Runs;
    Outcome outcome_;
    std::mutex mutex_;  // Guards made_.
    std::uint64_t made_ = 0;
};

// The work may be destroyed anywhere: then the call is told so.
class Duty {
public:
    explicit Duty(std::shared_ptr<Call> call) : call_(std::move(call)) {}
    ~Duty();
    Duty(const Duty&) = delete;
    Duty& operator=(const Duty&) = delete;
    Call& call() const { return *call_; }

private:
    const std::shared_ptr<Call> call_;
};

inline void fail(Call& call, const rdma::Error& error) {
    call.finish(error);
}

// Of what was thrown.
rdma::Error error_of(const std::exception_ptr& thrown);

// Finishes the call, with an error if the work throws or is destroyed before its end.
rdma::Task<void> guarded(std::shared_ptr<Call> call, rdma::Task<void> work);

}  // namespace feroce::python
