#include "feroce/gas/sync/spin_lock.hpp"

#include "gas/sync/hold.hpp"

namespace feroce::gas {

rdma::Task<Result<bool>> SpinLock::take(Lanes& lanes, ptr<Line> line) {
    const auto found = co_await lanes.compare_exchange(line.field<&Line::held>(), 0, 1);
    if (!found) co_return found.error();
    co_return *found == 0;
}

// A WRITE: while the lock is held no compare-and-swap succeeds, so none can undo it.
rdma::Task<Result<>> SpinLock::give(Lanes& lanes, ptr<Line> line) {
    co_return co_await lanes.write(line.field<&Line::held>(), 0);
}

rdma::Task<Result<bool>> SpinLock::trying() {
    const auto undo = [&lanes = lanes_, line = line_](bool taken) -> rdma::Task<void> {
        if (taken) static_cast<void>(co_await give(lanes, line));
    };
    rdma::Shelter attempt(lanes_.shelter(), take(lanes_, line_), undo);
    const auto taken = co_await attempt;
    // One that fails says nothing of another task that holds it by this handle.
    if (taken && *taken) held_ = true;
    co_return taken;
}

rdma::Task<Result<>> SpinLock::locking() {
    Backoff backoff(lanes_);
    for (;;) {
        const auto taken = co_await trying();
        if (!taken) co_return taken.error();
        if (*taken) co_return Result<>();
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
}

rdma::Task<Result<>> SpinLock::unlocking() {
    if (!std::exchange(held_, false)) return not_held();
    return finish(lanes_, give(lanes_, line_));
}

// A ticket cannot be given back: a thread that has drawn one waits for its turn.
rdma::Task<Result<TicketLock::Ticket>> TicketLock::take(Lanes& lanes, ptr<Line> line) {
    Ticket ticket = 0, owner = 0;
    auto both = lanes.chain(line.node());
    both.fetch_add(line.field<&Line::next>(), 1, ticket).read(line.field<&Line::owner>(), owner);
    if (const auto drawn = co_await both; !drawn) co_return drawn.error();
    Backoff backoff(lanes);
    while (owner != ticket) {
        // A holder takes about as long as a look: those farther behind look later.
        for (std::uint64_t ahead = ticket - owner; ahead > 0; --ahead)
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        const auto seen = co_await lanes.read(line.field<&Line::owner>());
        if (!seen) co_return seen.error();
        owner = *seen;
    }
    co_return ticket;
}

rdma::Task<Result<std::optional<TicketLock::Ticket>>> TicketLock::take_free(Lanes& lanes,
                                                                            ptr<Line> line) {
    const auto seen = co_await lanes.read(line);
    if (!seen) co_return seen.error();
    const Ticket next = seen->next.load();
    if (next != seen->owner.load()) co_return std::optional<Ticket>();
    const auto found = co_await lanes.compare_exchange(line.field<&Line::next>(), next, next + 1);
    if (!found) co_return found.error();
    if (*found != next) co_return std::optional<Ticket>();
    co_return std::optional<Ticket>(next);
}

rdma::Task<Result<>> TicketLock::pass_on(Lanes& lanes, ptr<Line> line, Ticket ticket) {
    co_return co_await lanes.write(line.field<&Line::owner>(), ticket + 1);
}

rdma::Task<Result<>> TicketLock::locking() {
    const auto release = [&lanes = lanes_, line = line_](Ticket ticket) {
        return pass_on(lanes, line, ticket);
    };
    return detail::hold<void>(lanes_, take(lanes_, line_), release, ticket_, held_);
}

rdma::Task<Result<bool>> TicketLock::trying() {
    const auto release = [&lanes = lanes_, line = line_](Ticket ticket) {
        return pass_on(lanes, line, ticket);
    };
    return detail::hold<bool>(lanes_, take_free(lanes_, line_), release, ticket_, held_);
}

rdma::Task<Result<>> TicketLock::unlocking() {
    if (!std::exchange(held_, false)) return not_held();
    return finish(lanes_, pass_on(lanes_, line_, ticket_));
}

}  // namespace feroce::gas
