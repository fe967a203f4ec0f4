#include "feroce/gas/sync/mcs_lock.hpp"

#include <cerrno>
#include <utility>

#include "gas/sync/hold.hpp"

namespace feroce::gas {
Result<ptr<McsLock::Place>> McsLock::take_place(Lanes& lanes, NodeId home) {
    // A place is lost by an error: none is spent on a node that is known to be lost.
    if (const auto lost = lanes.loss_of(home)) return *lost;
    const auto place = lanes.take_place<Place>();
    if (!place) return Error(ENOBUFS, "this thread holds or waits for too many locks at a time");
    lanes.local(place)->granted.store(0);
    lanes.local(place)->next.store(nullptr);
    return place;
}

rdma::Task<Result<ptr<McsLock::Place>>> McsLock::take_free(Lanes& lanes, ptr<Line> line) {
    const auto place = take_place(lanes, line.node());
    if (!place) co_return place.error();
    const auto before = co_await lanes.compare_exchange(line.field<&Line::tail>(), nullptr, *place);
    if (!before) lanes.replace_place();
    if (!before) co_return before.error();
    if (!*before) co_return *place;
    lanes.give_place(*place);
    co_return ptr<Place>();
}

// A place cannot be left: a thread that has one waits for its turn. After an error the place is not
// used again, since others of the queue may still write it.
rdma::Task<Result<ptr<McsLock::Place>>> McsLock::take(Lanes& lanes, ptr<Line> line) {
    const auto place = take_place(lanes, line.node());
    if (!place) co_return place.error();
    const auto first = co_await wait_in_queue(lanes, line, *place);
    if (!first) lanes.replace_place();
    if (!first) co_return first.error();
    co_return *place;
}

rdma::Task<Result<>> McsLock::wait_in_queue(Lanes& lanes, ptr<Line> line, ptr<Place> place) {
    const auto before = co_await lanes.exchange(line.field<&Line::tail>(), place);
    if (!before) co_return before.error();
    if (!*before) co_return Result<>();
    const auto linked = co_await lanes.write(before->field<&Place::next>(), place);
    if (!linked) co_return linked.error();
    Backoff backoff(lanes);
    for (unsigned looks = 1; lanes.local(place)->granted.load() == 0; ++looks) {
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        if (looks % detail::kLooksBlind != 0) continue;
        if (const auto there = co_await lanes.read(line.field<&Line::tail>()); !there)
            co_return there.error();
    }
    co_return Result<>();
}

rdma::Task<Result<>> McsLock::release(Lanes& lanes, ptr<Line> line, ptr<Place> place) {
    Place& own = *lanes.local(place);
    if (!own.next.load()) {
        const auto found =
            co_await lanes.compare_exchange(line.field<&Line::tail>(), place, nullptr);
        if (!found) lanes.replace_place();
        if (!found) co_return found.error();
        if (*found == place) {
            lanes.give_place(place);
            co_return Result<>();
        }
    }
    Backoff backoff(lanes);
    while (!own.next.load())  // Its owner has the tail already and is about to say so.
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    const auto handed = co_await lanes.write(own.next.load().field<&Place::granted>(), 1);
    lanes.give_place(place);
    co_return handed;
}

rdma::Task<Result<bool>> McsLock::trying() {
    const auto free = [&lanes = lanes_, line = line_](ptr<Place> place) {
        return release(lanes, line, place);
    };
    return detail::hold<bool>(lanes_, take_free(lanes_, line_), free, place_, held_);
}

rdma::Task<Result<>> McsLock::locking() {
    const auto free = [&lanes = lanes_, line = line_](ptr<Place> place) {
        return release(lanes, line, place);
    };
    return detail::hold<void>(lanes_, take(lanes_, line_), free, place_, held_);
}

rdma::Task<Result<>> McsLock::unlocking() {
    if (!std::exchange(held_, false)) return not_held();
    return finish(lanes_, release(lanes_, line_, place_));
}

}  // namespace feroce::gas
