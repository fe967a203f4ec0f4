// Condition: threads that hold a mutex wait until another one says that something has changed.
// First come, first woken. Notifying is for who holds the mutex: then nothing gets lost.
// Event: a gate that is open or closed; who waits passes when it is open.
// Who waits looks at the line again and again, with growing pauses.
#pragma once

#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {

class Condition {
public:
    struct alignas(64) Line {
        plain<std::uint64_t> waiting;  // Numbers given to who waits. Both change under the mutex.
        plain<std::uint64_t> woken;    // Whoever has a smaller number may go.
    };

    Condition(Mutex& mutex, ptr<Line> line) : mutex_(mutex), line_(line) {}
    // Gives the mutex back meanwhile, and has it again afterwards, also after an error of a limit.
    rdma::Task<Result<>> wait();
    rdma::Task<Result<>> notify_one();
    rdma::Task<Result<>> notify_all();

private:
    rdma::Task<Result<>> await_turn(std::uint64_t number);
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
    rdma::Task<Result<>> set() { return put(1); }
    rdma::Task<Result<>> reset() { return put(0); }
    rdma::Task<Result<>> wait();

private:
    rdma::Task<Result<>> put(std::uint64_t open);

    Lanes& lanes_;
    ptr<Line> line_;
};

}  // namespace feroce::gas
