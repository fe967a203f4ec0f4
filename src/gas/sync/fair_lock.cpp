#include <utility>

#include "feroce/gas/sync/alock.hpp"
#include "gas/sync/hold.hpp"

namespace feroce::gas {
namespace {

using Line = ALock::Line;
using Turn = ALock::Turn;

struct Tickets {
    std::uint64_t next = 0;
    std::uint64_t owner = 0;
};

// All three while this thread is the head that won.
rdma::Task<Result<Tickets>> look(Turn& turn) {
    if (turn.is_home()) co_return Tickets{turn.home->next.load(), turn.home->owner.load()};
    if (!turn.fresh) {  // Won by playing: what was read then may be older than the last drawing.
        const auto line = co_await turn.lanes->read(turn.line);
        if (!line) co_return line.error();
        turn.seen = *line;
    }
    co_return Tickets{turn.seen.next.load(), turn.seen.owner.load()};
}

// Takes the ticket and leaves the queue; for another node in one round trip if nobody is behind.
rdma::Task<Result<>> draw(Turn& turn, std::uint64_t ticket) {
    turn.ticket = ticket;
    if (turn.is_home()) {
        turn.home->next.store(ticket + 1);
        co_return co_await turn.unlock();
    }

    ptr<ALock::Place> found;
    auto step = turn.lanes->chain(turn.line.node());
    step.write(turn.line.field<&Line::next>(), ticket + 1);
    step.compare_exchange(turn.line.field<&Line::remote_tail>(), turn.place, nullptr, found);
    if (const auto done = co_await step; !done) co_return done.error();
    if (found != turn.place) co_return co_await turn.hand_on();
    turn.give_place();
    co_return Result<>();
}

rdma::Task<Result<>> await_turn(Turn& turn, std::uint64_t owner) {
    Backoff backoff(*turn.lanes);
    while (owner != turn.ticket) {
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        const auto seen = co_await turn.lanes->read(turn.line.field<&Line::owner>());
        if (!seen) co_return seen.error();
        owner = *seen;
    }
    if (turn.is_home()) backoff.stop_polling();
    co_return Result<>();
}

rdma::Task<Result<>> wait_for(Turn& turn) {
    if (const auto won = co_await turn.lock(); !won) co_return won.error();
    const auto tickets = co_await look(turn);
    if (!tickets) co_return tickets.error();
    if (const auto drawn = co_await draw(turn, tickets->next); !drawn) co_return drawn.error();
    co_return co_await await_turn(turn, tickets->owner);
}

rdma::Task<Result<bool>> try_for(Turn& turn) {
    const auto won = co_await turn.try_lock();
    if (!won || !*won) co_return won;
    const auto tickets = co_await look(turn);
    if (!tickets) co_return tickets.error();
    const bool free = tickets->owner == tickets->next;
    if (free) {
        if (const auto drawn = co_await draw(turn, tickets->next); !drawn) co_return drawn.error();
    } else if (const auto left = co_await turn.unlock(); !left) {
        co_return left.error();
    }
    co_return free;
}

}  // namespace

rdma::Task<Result<Turn>> FairLock::take(Turn turn) {
    const auto mine = co_await wait_for(turn);
    if (!mine) turn.abandon_place();
    if (!mine) co_return mine.error();
    co_return turn;
}

rdma::Task<Result<std::optional<Turn>>> FairLock::take_free(Turn turn) {
    const auto mine = co_await try_for(turn);
    if (!mine) turn.abandon_place();
    if (!mine) co_return mine.error();
    co_return *mine ? std::optional<Turn>(turn) : std::nullopt;
}

rdma::Task<Result<>> FairLock::release(Turn turn) {
    co_return co_await turn.lanes->write(turn.line.field<&Line::owner>(), turn.ticket + 1);
}

rdma::Task<Result<>> FairLock::locking() {
    return detail::hold<void>(lanes_, take(turn_), release, turn_, held_);
}

rdma::Task<Result<bool>> FairLock::trying() {
    return detail::hold<bool>(lanes_, take_free(turn_), release, turn_, held_);
}

rdma::Task<Result<>> FairLock::unlocking() {
    if (!std::exchange(held_, false)) return not_held();
    return finish(lanes_, release(turn_));
}

}  // namespace feroce::gas
