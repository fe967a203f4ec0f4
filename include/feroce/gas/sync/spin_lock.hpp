// SpinLock: compare-and-swap until it succeeds, with growing pauses. One round trip when free; not
// fair, and every attempt of a waiter crosses the network.
// TicketLock: first come, first served; one fetch-add to stand in line, one round trip when free.
// Waiters read the line again, the more seldom the farther they are from its head.
#pragma once

#include <optional>

#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {

class SpinLock final : public Mutex {
public:
    struct alignas(64) Line {
        nic<std::uint64_t> held;  // 1 if so.
    };

    SpinLock(Lanes& lanes, ptr<Line> line) : Mutex(lanes), line_(line) {}

private:
    rdma::Task<Result<>> locking() override;
    rdma::Task<Result<bool>> trying() override;
    rdma::Task<Result<>> unlocking() override;

    static rdma::Task<Result<bool>> take(Lanes& lanes, ptr<Line> line);
    static rdma::Task<Result<>> give(Lanes& lanes, ptr<Line> line);

    ptr<Line> line_;
};

class TicketLock final : public Mutex {
public:
    struct alignas(64) Line {
        nic<std::uint64_t> next;     // The next ticket.
        plain<std::uint64_t> owner;  // The ticket that may hold it; written by the holder alone.
    };

    TicketLock(Lanes& lanes, ptr<Line> line) : Mutex(lanes), line_(line) {}

private:
    rdma::Task<Result<>> locking() override;
    rdma::Task<Result<bool>> trying() override;
    rdma::Task<Result<>> unlocking() override;

    using Ticket = std::uint64_t;

    static rdma::Task<Result<Ticket>> take(Lanes& lanes, ptr<Line> line);
    // None: it is not free.
    static rdma::Task<Result<std::optional<Ticket>>> take_free(Lanes& lanes, ptr<Line> line);
    static rdma::Task<Result<>> pass_on(Lanes& lanes, ptr<Line> line, Ticket ticket);

    ptr<Line> line_;
    Ticket ticket_ = 0;  // While it is held.
};

}  // namespace feroce::gas
