#include "feroce/gas/sync/mcs_lock.hpp"

#include <cerrno>

namespace feroce::gas {

Result<> McsLock::take_place() {
    place_ = lanes_.take_place<Place>();
    if (!place_) return Error(ENOBUFS, "this thread holds or waits for too many locks at a time");
    lanes_.local(place_)->granted.store(0);
    lanes_.local(place_)->next.store(nullptr);
    return {};
}

rdma::Task<Result<bool>> McsLock::try_lock() {
    if (const auto taken = take_place(); !taken) co_return taken.error();
    const auto before =
        co_await lanes_.compare_exchange(line_.field<&Line::tail>(), nullptr, place_);
    if (before && !*before) co_return true;
    lanes_.give_place(place_);
    if (!before) co_return before.error();
    co_return false;
}

rdma::Task<Result<>> McsLock::lock() {
    if (const auto taken = take_place(); !taken) co_return taken.error();
    const auto before = co_await lanes_.exchange(line_.field<&Line::tail>(), place_);
    if (!before) co_return before.error();
    if (!*before) co_return Result<>();
    const auto linked = co_await lanes_.write(before->field<&Place::next>(), place_);
    if (!linked) co_return linked.error();
    Backoff backoff(lanes_);
    while (lanes_.local(place_)->granted.load() == 0)
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    co_return Result<>();
}

rdma::Task<Result<>> McsLock::unlock() {
    Place& own = *lanes_.local(place_);
    if (!own.next.load()) {
        const auto found =
            co_await lanes_.compare_exchange(line_.field<&Line::tail>(), place_, nullptr);
        if (!found) co_return found.error();
        if (*found == place_) {
            lanes_.give_place(place_);
            co_return Result<>();
        }
    }
    Backoff backoff(lanes_);
    while (!own.next.load())  // Its owner has the tail already and is about to say so.
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    const auto handed = co_await lanes_.write(own.next.load().field<&Place::granted>(), 1);
    lanes_.give_place(place_);
    co_return handed;
}

}  // namespace feroce::gas
