#include "feroce/gas/sync/spin_lock.hpp"

namespace feroce::gas {

rdma::Task<Result<bool>> SpinLock::try_lock() {
    const auto found = co_await lanes_.compare_exchange(line_.field<&Line::held>(), 0, 1);
    if (!found) co_return found.error();
    co_return *found == 0;
}

rdma::Task<Result<>> SpinLock::lock() {
    Backoff backoff(lanes_);
    for (;;) {
        const auto found = co_await lanes_.compare_exchange(line_.field<&Line::held>(), 0, 1);
        if (!found) co_return found.error();
        if (*found == 0) co_return Result<>();
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
}

// A WRITE: while the lock is held no compare-and-swap succeeds, so none can undo it.
rdma::Task<Result<>> SpinLock::unlock() {
    co_return co_await lanes_.write(line_.field<&Line::held>(), 0);
}

rdma::Task<Result<>> TicketLock::lock() {
    std::uint64_t owner = 0;
    auto both = lanes_.chain(line_.node());
    both.fetch_add(line_.field<&Line::next>(), 1, ticket_).read(line_.field<&Line::owner>(), owner);
    if (const auto drawn = co_await both; !drawn) co_return drawn.error();
    while (owner != ticket_) {
        // A holder takes about as long as a look: those farther behind look later.
        Backoff backoff(lanes_);
        for (std::uint64_t ahead = ticket_ - owner; ahead > 0; --ahead)
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        const auto seen = co_await lanes_.read(line_.field<&Line::owner>());
        if (!seen) co_return seen.error();
        owner = *seen;
    }
    co_return Result<>();
}

rdma::Task<Result<bool>> TicketLock::try_lock() {
    const auto line = co_await lanes_.read(line_);
    if (!line) co_return line.error();
    const std::uint64_t next = line->next.load();
    if (next != line->owner.load()) co_return false;
    const auto found = co_await lanes_.compare_exchange(line_.field<&Line::next>(), next, next + 1);
    if (!found) co_return found.error();
    ticket_ = next;
    co_return *found == next;
}

rdma::Task<Result<>> TicketLock::unlock() {
    co_return co_await lanes_.write(line_.field<&Line::owner>(), ticket_ + 1);
}

}  // namespace feroce::gas
