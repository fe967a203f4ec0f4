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

rdma::Task<Result<bool>> LeaseLock::replace(std::uint64_t expected, std::uint64_t desired,
                                            std::uint64_t& found) {
    const auto seen =
        co_await lanes_.compare_exchange(line_.field<&Line::word>(), expected, desired);
    if (!seen) co_return seen.error();
    found = *seen;
    co_return found == expected;
}

rdma::Task<Result<bool>> LeaseLock::take(std::uint64_t expected, std::uint64_t& found) {
    // The lease begins before anybody can see the word.
    const Instant asked = lanes_.loop().now();
    const std::uint64_t word = own_after(expected);
    const auto taken = co_await replace(expected, word, found);
    if (!taken || !*taken) co_return taken;
    word_ = word;
    until_ = asked + lanes_.lease().time;
    co_return true;
}

rdma::Task<Result<>> LeaseLock::lock() {
    const auto locked = co_await lock_until(kNever);
    if (!locked) co_return locked.error();
    co_return Result<>();
}

rdma::Task<Result<bool>> LeaseLock::lock_until(Instant deadline) {
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

rdma::Task<Result<bool>> LeaseLock::try_lock() {
    std::uint64_t word = guess_;
    for (;;) {
        const auto taken = co_await take(word, word);
        if (!taken || *taken) co_return taken;
        if (!is_free(word)) co_return false;
    }
}

rdma::Task<Result<>> LeaseLock::renew() {
    if (!held()) co_return too_late();
    constexpr std::uint64_t kBeats = std::uint64_t{0xff} << kBeatShift;
    const std::uint64_t beat = (word_ + (std::uint64_t{1} << kBeatShift)) & kBeats;
    const std::uint64_t next = (word_ & ~kBeats) | beat;
    const Instant asked = lanes_.loop().now();
    std::uint64_t found = 0;
    const auto renewed = co_await replace(word_, next, found);
    if (!renewed) co_return renewed.error();
    if (!*renewed) {
        word_ = 0;
        co_return too_late();
    }
    word_ = next;
    until_ = asked + lanes_.lease().time;
    co_return Result<>();
}

rdma::Task<Result<>> LeaseLock::unlock() {
    const std::uint64_t word = std::exchange(word_, 0);
    guess_ = word >> kTokenShift << kTokenShift;
    std::uint64_t found = 0;
    const auto freed = co_await replace(word, guess_, found);
    if (!freed) co_return freed.error();
    if (!*freed) co_return too_late();
    co_return Result<>();
}

}  // namespace feroce::gas
