#include "feroce/gas/sync/lease_lock.hpp"

#include <cerrno>

namespace feroce::gas {
namespace {

Error too_late() {
    return {ESTALE, "the lease of the lock has ended: others may have taken it"};
}

}  // namespace

std::uint64_t LeaseLock::own_after(std::uint64_t word) const {
    const std::uint64_t next = (word >> kTokenShift) + 1;
    return next << kTokenShift | (static_cast<std::uint64_t>(lanes_.self()) + 1);
}

rdma::Task<Result<std::uint64_t>> LeaseLock::replace(Lanes& lanes, ptr<Line> line,
                                                     std::uint64_t expected,
                                                     std::uint64_t desired) {
    co_return co_await lanes.compare_exchange(line.field<&Line::word>(), expected, desired);
}

rdma::Task<Result<>> LeaseLock::release(Lanes& lanes, ptr<Line> line, std::uint64_t word) {
    const auto found = co_await replace(lanes, line, word, freed(word));
    if (!found) co_return found.error();
    if (*found != word) co_return too_late();
    co_return Result<>();
}

rdma::Task<Result<bool>> LeaseLock::take(std::uint64_t expected, std::uint64_t& found) {
    // The lease begins before anybody can see the word.
    const Instant asked = lanes_.loop().now();
    const std::uint64_t word = own_after(expected);
    const auto undo = [&lanes = lanes_, line = line_, expected,
                       word](std::uint64_t was) -> rdma::Task<void> {
        if (was == expected) static_cast<void>(co_await release(lanes, line, word));
    };
    rdma::Shelter attempt(lanes_.shelter(), replace(lanes_, line_, expected, word), undo);
    const auto was = co_await attempt;
    if (!was) co_return was.error();
    found = *was;
    if (found != expected) co_return false;
    word_ = word;
    until_ = asked + lanes_.lease().time;
    co_return true;
}

rdma::Task<Result<>> LeaseLock::locking() {
    const auto locked = co_await locking_until(kNever);
    if (!locked) co_return locked.error();
    co_return Result<>();
}

rdma::Task<Result<bool>> LeaseLock::locking_until(Instant deadline) {
    Backoff backoff(lanes_);
    Watch watch(lanes_);
    std::uint64_t word = guess_;
    for (;;) {
        if (is_free(word) || watch.expired(word)) {
            const auto taken = co_await take(word, word);
            if (!taken || *taken) co_return taken;
            if (is_free(word)) continue;
        }
        if (lanes_.loop().now() >= deadline) co_return false;
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        const auto seen = co_await lanes_.read(line_.field<&Line::word>());
        if (!seen) co_return seen.error();
        word = *seen;
    }
}

rdma::Task<Result<bool>> LeaseLock::trying() {
    std::uint64_t word = guess_;
    for (;;) {
        const auto taken = co_await take(word, word);
        if (!taken || *taken) co_return taken;
        if (!is_free(word)) co_return false;
    }
}

rdma::Task<Result<>> LeaseLock::renewing() {
    if (!held()) co_return too_late();
    constexpr std::uint64_t kBeats = std::uint64_t{0xff} << kBeatShift;
    const std::uint64_t beat = (word_ + (std::uint64_t{1} << kBeatShift)) & kBeats;
    const std::uint64_t next = (word_ & ~kBeats) | beat;
    const Instant asked = lanes_.loop().now();
    // Shielded: a caller that gave up would not know which of the two words is there.
    const auto found = co_await replace(lanes_, line_, word_, next).shielded();
    if (!found) co_return found.error();
    if (*found != word_) {
        word_ = 0;
        co_return too_late();
    }
    word_ = next;
    until_ = asked + lanes_.lease().time;
    co_return Result<>();
}

rdma::Task<Result<>> LeaseLock::unlocking() {
    const std::uint64_t word = std::exchange(word_, 0);
    guess_ = freed(word);
    return finish(lanes_, release(lanes_, line_, word));
}

}  // namespace feroce::gas
