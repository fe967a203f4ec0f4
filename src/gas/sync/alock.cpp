#include "feroce/gas/sync/alock.hpp"

#include <cerrno>
#include <utility>

#include "gas/sync/hold.hpp"

namespace feroce::gas {
namespace {

constexpr std::int64_t kWaiting = -1;

}  // namespace

Result<> ALock::Turn::take_place() {
    fresh = false;
    place = nullptr;
    // A place is lost by an error: none is spent on a node that is known to be lost.
    if (const auto lost = lanes->loss_of(line.node())) return *lost;
    place = lanes->take_place<Place>();
    if (!place) return Error(ENOBUFS, "this thread holds or waits for too many locks at a time");
    own().budget.store(kWaiting);
    own().next.store(nullptr);
    return {};
}

ALock::Entry ALock::Turn::enter_home() {
    // Sequentially consistent, as all words: our tail is seen before we look at the other.
    const ptr<Place> before = home->local_tail.exchange(place);
    return {before, !before && options.fast_path && !home->remote_tail.load()};
}

rdma::Task<Result<ALock::Entry>> ALock::Turn::enter_remote() {
    ptr<Place> guess;
    for (;;) {
        ptr<Place> found;
        auto step = lanes->chain(line.node());
        step.compare_exchange(line.field<&Line::remote_tail>(), guess, place, found);
        // Behind the swap, never before: only then is an empty queue of the other side one that
        // will see us when it fills.
        ptr<Place> other;
        const bool looks = options.fast_path && !guess;
        if (looks) step.read(line.field<&Line::local_tail>(), other);
        // Another READ: the words of one may have been read in any order.
        if (looks && wants_line) step.read(line, seen);
        if (const auto done = co_await step; !done) co_return done.error();
        fresh = found == guess && looks && !other;
        if (found == guess) co_return Entry{guess, fresh};
        guess = found;
    }
}

rdma::Task<Result<>> ALock::Turn::play_home() {
    home->victim.store(kLocal);
    Backoff backoff(*lanes);
    while (home->remote_tail.load() && home->victim.load() == kLocal)
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    backoff.stop_polling();
    co_return Result<>();
}

rdma::Task<Result<>> ALock::Turn::play_remote() {
    bool told = false;
    Backoff backoff(*lanes);
    for (;;) {
        auto step = lanes->chain(line.node());
        if (!told) step.write(line.field<&Line::victim>(), kRemote);
        step.read(line, seen);
        if (const auto done = co_await step; !done) co_return done.error();
        if (!seen.local_tail.load() || seen.victim.load() != kRemote) co_return Result<>();
        told = true;
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
}

// Peterson between the heads of the queues, unless the other queue is known to be empty.
rdma::Task<Result<>> ALock::Turn::play(bool alone) {
    // Two statements: g++ 12 ends both tasks of a conditional expression, also the one not made.
    if (!alone && is_home())
        if (const auto won = co_await play_home(); !won) co_return won.error();
    if (!alone && !is_home())
        if (const auto won = co_await play_remote(); !won) co_return won.error();
    own().budget.store(whole_budget());
    co_return Result<>();
}

rdma::Task<Result<>> ALock::Turn::wait_in_queue(ptr<Place> before) {
    const auto linked = co_await lanes->write(before.field<&Place::next>(), place);
    if (!linked) co_return linked.error();
    Backoff backoff(*lanes);
    for (unsigned looks = 1; own().budget.load() == kWaiting; ++looks) {
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        if (is_home() || looks % detail::kLooksBlind != 0) continue;
        if (const auto there = co_await lanes->read(line.field<&Line::victim>()); !there)
            co_return there.error();
    }
    if (is_home()) backoff.stop_polling();
    co_return Result<>();
}

// A place cannot be left: a thread that has one goes on to the end. After an error the place is not
// used again, since others of the queue may still write it.
rdma::Task<Result<>> ALock::Turn::lock() {
    if (const auto taken = take_place(); !taken) co_return taken.error();
    Entry entry;
    if (is_home()) {
        entry = enter_home();
    } else if (options.enter_remote != nullptr) {
        const auto entered = co_await options.enter_remote(*this);
        if (!entered) co_return entered.error();
        entry = *entered;
    } else {
        const auto entered = co_await enter_remote();
        if (!entered) co_return entered.error();
        entry = *entered;
    }
    if (!entry.before) co_return co_await play(entry.alone);
    if (const auto first = co_await wait_in_queue(entry.before); !first) co_return first.error();
    if (own().budget.load() > 0) co_return Result<>();
    const bool alone = is_home() && options.fast_path && !home->remote_tail.load();
    co_return co_await play(alone);
}

rdma::Task<Result<bool>> ALock::Turn::try_lock() {
    if (const auto taken = take_place(); !taken) co_return taken.error();
    ptr<Place> found, other;
    if (is_home()) {
        found = home->local_tail.compare_exchange(nullptr, place);
        other = home->remote_tail.load();
    } else {
        auto step = lanes->chain(line.node());
        step.compare_exchange(line.field<&Line::remote_tail>(), nullptr, place, found);
        step.read(line.field<&Line::local_tail>(), other);
        if (wants_line) step.read(line, seen);
        if (const auto done = co_await step; !done) co_return done.error();
        fresh = !found && !other;
    }
    if (found) {
        give_place();
        co_return false;
    }
    own().budget.store(whole_budget());
    if (!other) co_return true;
    // Head of our queue, but the other side wants it too. Leaving is like unlocking, only that
    // the next thread has to play.
    own().budget.store(0);
    if (const auto left = co_await unlock(); !left) co_return left.error();
    co_return false;
}

rdma::Task<Result<>> ALock::Turn::unlock() {
    if (!own().next.load()) {
        ptr<Place> found;
        if (is_home()) {
            found = home->local_tail.compare_exchange(place, nullptr);
        } else {
            const auto swapped =
                co_await lanes->compare_exchange(line.field<&Line::remote_tail>(), place, nullptr);
            if (!swapped) co_return swapped.error();
            found = *swapped;
        }
        if (found == place) {
            give_place();
            co_return Result<>();
        }
    }
    co_return co_await hand_on();
}

// Somebody waits behind us, or has the tail already and is about to say so.
rdma::Task<Result<>> ALock::Turn::hand_on() {
    Backoff backoff(*lanes);
    while (!own().next.load())
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    if (is_home()) backoff.stop_polling();
    const std::int64_t left = own().budget.load() > 0 ? own().budget.load() - 1 : 0;
    const auto handed = co_await lanes->write(own().next.load().field<&Place::budget>(), left);
    give_place();
    co_return handed;
}

rdma::Task<Result<ALock::Turn>> ALock::take(Turn turn) {
    const auto locked = co_await turn.lock();
    if (!locked) turn.abandon_place();
    if (!locked) co_return locked.error();
    co_return turn;
}

rdma::Task<Result<std::optional<ALock::Turn>>> ALock::take_free(Turn turn) {
    const auto locked = co_await turn.try_lock();
    if (!locked) turn.abandon_place();
    if (!locked) co_return locked.error();
    if (!*locked) co_return std::optional<Turn>();
    co_return std::optional<Turn>(turn);
}

rdma::Task<Result<>> ALock::release(Turn turn) {
    const auto unlocked = co_await turn.unlock();
    if (!unlocked) turn.abandon_place();
    co_return unlocked;
}

rdma::Task<Result<>> ALock::locking() {
    return detail::hold<void>(lanes_, take(turn_), release, turn_, held_);
}

rdma::Task<Result<bool>> ALock::trying() {
    return detail::hold<bool>(lanes_, take_free(turn_), release, turn_, held_);
}

rdma::Task<Result<>> ALock::unlocking() {
    if (!std::exchange(held_, false)) return not_held();
    return finish(lanes_, release(turn_));
}

}  // namespace feroce::gas
