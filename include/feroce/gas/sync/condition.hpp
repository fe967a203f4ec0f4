// Condition: threads that hold a mutex wait until another one says that something has changed.
// First come, first woken. Notifying is for the holder of the mutex: then nothing gets lost. As
// with every condition, a woken waiter looks again whether it is what it waited for. Event: a gate
// that is open or closed; waiters pass when it is open. A waiter looks at the line again and again,
// with growing pauses.
#pragma once

#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {

class Condition {
public:
    static constexpr std::size_t kLeftWords = 6;
    static constexpr std::uint64_t kWindow = kLeftWords * 64;
    struct alignas(64) Line {
        // All change under the mutex.
        plain<std::uint64_t> waiting;  // Numbers given to waiters.
        plain<std::uint64_t> woken;    // Waiters with smaller numbers may go.
        // A bit for each of the numbers from `woken` on, modulo kWindow: its waiter has given up.
        plain<std::uint64_t> left[kLeftWords];
    };
    static_assert(sizeof(Line) == 64);

    Condition(Mutex& mutex, ptr<Line> line) : mutex_(mutex), line_(line) {}
    // Gives the mutex back meanwhile, and has it again afterwards, also after ETIMEDOUT or
    // ECANCELED, which come late by as long as it takes to get it. After another error it is not
    // held: a home node is lost. A wait whose coroutine is destroyed keeps its number, and a
    // notify_one may be spent on it.
    Call<> wait() { return {loop(), waiting()}; }
    Call<> notify_one() { return {loop(), wake(1).shielded()}; }
    Call<> notify_all() { return {loop(), wake(~std::uint64_t{0}).shielded()}; }

private:
    rdma::Loop& loop() const { return mutex_.lanes().loop(); }
    rdma::Task<Result<>> waiting();
    rdma::Task<Result<std::uint64_t>> draw_number();
    rdma::Task<Result<>> await_turn(std::uint64_t number);
    rdma::Task<Result<>> give_up(std::uint64_t number, Error why);
    rdma::Task<Result<>> wake(std::uint64_t most);

    Mutex& mutex_;
    ptr<Line> line_;
};

class Event {
public:
    struct alignas(64) Line {
        plain<std::uint64_t> open;
    };

    Event(Lanes& lanes, ptr<Line> line) : lanes_(lanes), line_(line) {}
    Call<> set() { return {lanes_.loop(), put(1)}; }
    Call<> reset() { return {lanes_.loop(), put(0)}; }
    Call<> wait() { return {lanes_.loop(), waiting()}; }

private:
    rdma::Task<Result<>> waiting();
    rdma::Task<Result<>> put(std::uint64_t open);

    Lanes& lanes_;
    ptr<Line> line_;
};

}  // namespace feroce::gas
