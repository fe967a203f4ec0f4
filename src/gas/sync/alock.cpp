#include "feroce/gas/sync/alock.hpp"

#include <cerrno>

namespace feroce::gas {
namespace {

constexpr std::int64_t kWaiting = -1;

}  // namespace

Result<> ALock::take_place() {
    place_ = lanes_.take_place<Place>();
    if (!place_) return Error(ENOBUFS, "this thread holds or waits for too many locks at a time");
    lanes_.local(place_)->budget.store(kWaiting);
    lanes_.local(place_)->next.store(nullptr);
    return {};
}

ALock::Entry ALock::enter_home() {
    // Sequentially consistent, as all words: our tail is seen before we look at the other.
    const ptr<Place> before = home_->local_tail.exchange(place_);
    return {before, !before && options_.fast_path && !home_->remote_tail.load()};
}

rdma::Task<Result<ALock::Entry>> ALock::enter_remote() {
    ptr<Place> guess;
    for (;;) {
        ptr<Place> found;
        auto step = lanes_.chain(line_.node());
        step.compare_exchange(line_.field<&Line::remote_tail>(), guess, place_, found);
        // Behind the swap, never before: only then is an empty queue of the other side one that
        // will see us when it fills.
        ptr<Place> other;
        const bool looks = options_.fast_path && !guess;
        if (looks) step.read(line_.field<&Line::local_tail>(), other);
        // Another READ: the words of one may have been read in any order.
        if (looks && wants_line_) step.read(line_, seen_);
        if (const auto done = co_await step; !done) co_return done.error();
        fresh_ = found == guess && looks && !other;
        if (found == guess) co_return Entry{guess, fresh_};
        guess = found;
    }
}

rdma::Task<Result<>> ALock::play_home() {
    home_->victim.store(kLocal);
    Backoff backoff(lanes_);
    while (home_->remote_tail.load() && home_->victim.load() == kLocal)
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    backoff.stop_polling();
    co_return Result<>();
}

rdma::Task<Result<>> ALock::play_remote() {
    bool told = false;
    Backoff backoff(lanes_);
    for (;;) {
        auto step = lanes_.chain(line_.node());
        if (!told) step.write(line_.field<&Line::victim>(), kRemote);
        step.read(line_, seen_);
        if (const auto done = co_await step; !done) co_return done.error();
        if (!seen_.local_tail.load() || seen_.victim.load() != kRemote) co_return Result<>();
        told = true;
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
}

// Peterson between the heads of the queues, unless the other queue is known to be empty.
rdma::Task<Result<>> ALock::play(bool alone) {
    // Two statements: g++ 12 ends both tasks of a conditional expression, also the one not made.
    if (!alone && is_home())
        if (const auto won = co_await play_home(); !won) co_return won.error();
    if (!alone && !is_home())
        if (const auto won = co_await play_remote(); !won) co_return won.error();
    lanes_.local(place_)->budget.store(is_home() ? options_.local_budget : options_.remote_budget);
    co_return Result<>();
}

rdma::Task<Result<>> ALock::lock() {
    fresh_ = false;
    if (const auto taken = take_place(); !taken) co_return taken.error();
    Entry entry;
    if (is_home()) {
        entry = enter_home();
    } else {
        const auto entered = co_await enter_remote();
        if (!entered) co_return entered.error();
        entry = *entered;
    }
    if (!entry.before) co_return co_await play(entry.alone);
    const auto linked = co_await lanes_.write(entry.before.field<&Place::next>(), place_);
    if (!linked) co_return linked.error();
    Place& own = *lanes_.local(place_);
    Backoff backoff(lanes_);
    while (own.budget.load() == kWaiting)
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    if (is_home()) backoff.stop_polling();
    if (own.budget.load() > 0) co_return Result<>();
    const bool alone = is_home() && options_.fast_path && !home_->remote_tail.load();
    co_return co_await play(alone);
}

rdma::Task<Result<bool>> ALock::try_lock() {
    if (const auto taken = take_place(); !taken) co_return taken.error();
    Place& own = *lanes_.local(place_);
    ptr<Place> found, other;
    if (is_home()) {
        found = home_->local_tail.compare_exchange(nullptr, place_);
        other = home_->remote_tail.load();
    } else {
        auto step = lanes_.chain(line_.node());
        step.compare_exchange(line_.field<&Line::remote_tail>(), nullptr, place_, found);
        step.read(line_.field<&Line::local_tail>(), other);
        if (wants_line_) step.read(line_, seen_);
        if (const auto done = co_await step; !done) co_return done.error();
        fresh_ = !found && !other;
    }
    if (found) {
        lanes_.give_place(place_);
        co_return false;
    }
    own.budget.store(is_home() ? options_.local_budget : options_.remote_budget);
    if (!other) co_return true;
    // Head of our queue, but the other side wants it too. Leaving is like unlocking, only that
    // whoever comes next has to play.
    own.budget.store(0);
    if (const auto left = co_await ALock::unlock(); !left) co_return left.error();
    co_return false;
}

rdma::Task<Result<>> ALock::unlock() {
    if (!lanes_.local(place_)->next.load()) {
        ptr<Place> found;
        if (is_home()) {
            found = home_->local_tail.compare_exchange(place_, nullptr);
        } else {
            const auto swapped = co_await lanes_.compare_exchange(line_.field<&Line::remote_tail>(),
                                                                  place_, nullptr);
            if (!swapped) co_return swapped.error();
            found = *swapped;
        }
        if (found == place_) {
            lanes_.give_place(place_);
            co_return Result<>();
        }
    }
    co_return co_await hand_on();
}

// Somebody stands behind us, or has the tail already and is about to say so.
rdma::Task<Result<>> ALock::hand_on() {
    Place& own = *lanes_.local(place_);
    Backoff backoff(lanes_);
    while (!own.next.load())
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    if (is_home()) backoff.stop_polling();
    const std::int64_t left = own.budget.load() > 0 ? own.budget.load() - 1 : 0;
    const auto handed = co_await lanes_.write(own.next.load().field<&Place::budget>(), left);
    lanes_.give_place(place_);
    co_return handed;
}

}  // namespace feroce::gas
