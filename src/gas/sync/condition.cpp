#include "feroce/gas/sync/condition.hpp"

#include <algorithm>

namespace feroce::gas {

rdma::Task<Result<>> Condition::await_turn(std::uint64_t number) {
    Lanes& lanes = mutex_.lanes();
    Backoff backoff(lanes);
    for (;;) {
        const auto woken = co_await lanes.read(line_.field<&Line::woken>());
        if (!woken) co_return woken.error();
        if (number < *woken) co_return Result<>();
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
    }
}

rdma::Task<Result<>> Condition::wait() {
    Lanes& lanes = mutex_.lanes();
    const auto number = co_await lanes.read(line_.field<&Line::waiting>());
    if (!number) co_return number.error();
    const auto counted = co_await lanes.write(line_.field<&Line::waiting>(), *number + 1);
    if (!counted) co_return counted;
    if (const auto freed = co_await mutex_.unlock(); !freed) co_return freed;
    const auto woken = co_await await_turn(*number);
    if (const auto locked = co_await mutex_.lock(); !locked) co_return locked;
    co_return woken;
}

rdma::Task<Result<>> Condition::wake(std::uint64_t most) {
    Lanes& lanes = mutex_.lanes();
    std::uint64_t waiting = 0, woken = 0;
    auto both = lanes.chain(line_.node());
    both.read(line_.field<&Line::waiting>(), waiting).read(line_.field<&Line::woken>(), woken);
    if (const auto done = co_await both; !done) co_return done;
    if (woken == waiting) co_return Result<>();
    const std::uint64_t next = woken + std::min(most, waiting - woken);
    co_return co_await lanes.write(line_.field<&Line::woken>(), next);
}

rdma::Task<Result<>> Condition::notify_one() {
    return wake(1);
}

rdma::Task<Result<>> Condition::notify_all() {
    return wake(~std::uint64_t{0});
}

rdma::Task<Result<>> Event::put(std::uint64_t open) {
    co_return co_await lanes_.write(line_.field<&Line::open>(), open);
}

rdma::Task<Result<>> Event::wait() {
    Backoff backoff(lanes_);
    for (;;) {
        const auto open = co_await lanes_.read(line_.field<&Line::open>());
        if (!open) co_return open.error();
        if (*open != 0) co_return Result<>();
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
    }
}

}  // namespace feroce::gas
