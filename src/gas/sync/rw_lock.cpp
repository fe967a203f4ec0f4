#include "feroce/gas/sync/rw_lock.hpp"

namespace feroce::gas {
namespace {

constexpr std::uint64_t kWriter = std::uint64_t{1} << 63;

}  // namespace

rdma::Task<Result<bool>> RwLock::try_lock_shared() {
    const auto before = co_await lanes_.fetch_add(line_.field<&Line::word>(), 1);
    if (!before) co_return before.error();
    if ((*before & kWriter) == 0) co_return true;
    const auto undone = co_await lanes_.fetch_add(line_.field<&Line::word>(), ~std::uint64_t{0});
    if (!undone) co_return undone.error();
    co_return false;
}

rdma::Task<Result<>> RwLock::lock_shared() {
    Backoff backoff(lanes_);
    for (;;) {
        const auto got = co_await try_lock_shared();
        if (!got) co_return got.error();
        if (*got) co_return Result<>();
        for (bool writing = true; writing;) {  // Reads, so as not to disturb the writer's wait.
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
            const auto word = co_await lanes_.read(line_.field<&Line::word>());
            if (!word) co_return word.error();
            writing = (*word & kWriter) != 0;
        }
    }
}

rdma::Task<Result<>> RwLock::unlock_shared() {
    const auto before = co_await lanes_.fetch_add(line_.field<&Line::word>(), ~std::uint64_t{0});
    if (!before) co_return before.error();
    co_return Result<>();
}

rdma::Task<Result<bool>> RwLock::try_lock() {
    const auto before = co_await lanes_.compare_exchange(line_.field<&Line::word>(), 0, kWriter);
    if (!before) co_return before.error();
    co_return *before == 0;
}

rdma::Task<Result<>> RwLock::lock() {
    Backoff backoff(lanes_);
    std::uint64_t guess = 0;
    for (;;) {  // First keep out other writers, and readers that come.
        const auto before =
            co_await lanes_.compare_exchange(line_.field<&Line::word>(), guess, guess | kWriter);
        if (!before) co_return before.error();
        if (*before == guess) break;
        guess = *before & ~kWriter;
        if ((*before & kWriter) == 0) continue;
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
    while (guess != 0) {  // Then wait for the readers that are inside.
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        const auto word = co_await lanes_.read(line_.field<&Line::word>());
        if (!word) co_return word.error();
        guess = *word & ~kWriter;
    }
    co_return Result<>();
}

// A fetch-add: readers that come and go change the rest of the word meanwhile.
rdma::Task<Result<>> RwLock::unlock() {
    const auto before = co_await lanes_.fetch_add(line_.field<&Line::word>(), kWriter);
    if (!before) co_return before.error();
    co_return Result<>();
}

rdma::Task<Result<bool>> Semaphore::try_acquire() {
    const auto before = co_await lanes_.fetch_add(line_.field<&Line::permits>(), -1);
    if (!before) co_return before.error();
    if (*before > 0) co_return true;
    if (const auto undone = co_await release(); !undone) co_return undone.error();
    co_return false;
}

rdma::Task<Result<>> Semaphore::acquire() {
    Backoff backoff(lanes_);
    for (;;) {
        const auto got = co_await try_acquire();
        if (!got) co_return got.error();
        if (*got) co_return Result<>();
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
}

rdma::Task<Result<>> Semaphore::release(std::int64_t count) {
    const auto before = co_await lanes_.fetch_add(line_.field<&Line::permits>(), count);
    if (!before) co_return before.error();
    co_return Result<>();
}

}  // namespace feroce::gas
