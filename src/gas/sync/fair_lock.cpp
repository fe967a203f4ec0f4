#include "feroce/gas/sync/alock.hpp"

namespace feroce::gas {

rdma::Task<Result<FairLock::Tickets>> FairLock::look() {
    if (is_home()) co_return Tickets{home_->next.load(), home_->owner.load()};
    if (!fresh_) {  // Won by playing: what was read meanwhile may be older than the last drawing.
        const auto line = co_await lanes_.read(line_);
        if (!line) co_return line.error();
        seen_ = *line;
    }
    co_return Tickets{seen_.next.load(), seen_.owner.load()};
}

// Takes the ticket and leaves the queue; for another node in one round trip if nobody is behind.
rdma::Task<Result<>> FairLock::draw(std::uint64_t ticket) {
    ticket_ = ticket;
    if (is_home()) {
        home_->next.store(ticket + 1);
        co_return co_await ALock::unlock();
    }

    ptr<Place> found;
    auto step = lanes_.chain(line_.node());
    step.write(line_.field<&Line::next>(), ticket + 1);
    step.compare_exchange(line_.field<&Line::remote_tail>(), place_, nullptr, found);
    if (const auto done = co_await step; !done) co_return done.error();
    if (found != place_) co_return co_await hand_on();
    lanes_.give_place(place_);
    co_return Result<>();
}

rdma::Task<Result<>> FairLock::await_turn(std::uint64_t owner) {
    Backoff backoff(lanes_);
    while (owner != ticket_) {
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        const auto seen = co_await lanes_.read(line_.field<&Line::owner>());
        if (!seen) co_return seen.error();
        owner = *seen;
    }
    if (is_home()) backoff.stop_polling();
    co_return Result<>();
}

rdma::Task<Result<>> FairLock::lock() {
    if (const auto won = co_await ALock::lock(); !won) co_return won.error();
    const auto tickets = co_await look();
    if (!tickets) co_return tickets.error();
    if (const auto drawn = co_await draw(tickets->next); !drawn) co_return drawn.error();
    co_return co_await await_turn(tickets->owner);
}

rdma::Task<Result<bool>> FairLock::try_lock() {
    const auto won = co_await ALock::try_lock();
    if (!won || !*won) co_return won;
    const auto tickets = co_await look();
    if (!tickets) co_return tickets.error();
    if (tickets->owner != tickets->next) {
        if (const auto left = co_await ALock::unlock(); !left) co_return left.error();
        co_return false;
    }
    if (const auto drawn = co_await draw(tickets->next); !drawn) co_return drawn.error();
    co_return true;
}

rdma::Task<Result<>> FairLock::unlock() {
    co_return co_await lanes_.write(line_.field<&Line::owner>(), ticket_ + 1);
}

}  // namespace feroce::gas
