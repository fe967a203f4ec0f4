#include "feroce/gas/sync/mutex.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace feroce::gas {
namespace {

// A memory of this machine changes within such a number of looks, if its writer runs.
constexpr unsigned kEagerLooks = 32;
constexpr unsigned kDoublings = 10;
constexpr Duration kLongest = std::chrono::milliseconds(1);

// Only a lost home node makes it fail, and then there is nobody to free the lock for.
rdma::Task<void> release_later(rdma::Task<Result<>> release) {
    static_cast<void>(co_await std::move(release));
}

}  // namespace

Guard::~Guard() {
    if (mutex_ == nullptr) return;
    Lanes& lanes = mutex_->lanes();
    lanes.shelter().spawn(release_later(mutex_->unlock()));
    // A thread that is not in its loop may be away from it for long after this.
    if (!lanes.loop().in_round()) lanes.flush();
}

rdma::Task<Result<>> Guard::releasing() {
    Mutex* mutex = std::exchange(mutex_, nullptr);
    if (mutex == nullptr) co_return Result<>();
    co_return co_await mutex->unlock();
}

rdma::Task<Result<Guard>> Mutex::guarding() {
    const Result<> locked = co_await lock();
    if (!locked) co_return locked.error();
    co_return Guard(*this);
}

rdma::Task<Result<>> Mutex::finish(Lanes& lanes, rdma::Task<Result<>> release) {
    rdma::Shelter done(lanes.shelter(), std::move(release), rdma::NoUndo{});
    done.shield();
    co_return co_await done;
}

rdma::Task<Result<>> Mutex::not_held() {
    co_return Error(EPERM, "this handle does not hold the lock");
}

rdma::Task<Result<bool>> Mutex::locking_until(Instant deadline) {
    Backoff backoff(lanes_);
    for (;;) {
        const Result<bool> got = co_await try_lock();
        if (!got || *got || lanes_.loop().now() >= deadline) co_return got;
        if (const Result<> paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
}

rdma::Loop::Sleep Backoff::pause() {
    if (looks_ < kEagerLooks) {
        ++looks_;
        return loop_.yield();
    }
    const Instant now = loop_.now();
    if (looks_ == kEagerLooks) since_ = now;
    const unsigned doublings = std::min(looks_++ - kEagerLooks, kDoublings);
    const Duration soon = std::min(longest_, Duration(1000) * (1u << doublings));
    // A thread that waits for long need not keep its core busy: it comes late by an eighth at most.
    const Duration limit = std::max(soon, std::min((now - since_) / 8, kLongest));
    const auto ns = static_cast<std::uint64_t>(limit.count());
    return loop_.sleep(
        Duration(static_cast<Duration::rep>(ns / 2 + loop_.runtime().random() % (ns / 2 + 1))));
}

bool Watch::expired(std::uint64_t claim) {
    const Instant now = lanes_.loop().now();
    if (claim != claim_) {
        claim_ = claim;
        since_ = now;
    }
    return now - since_ >= lanes_.lease().time + lanes_.lease().grace;
}

}  // namespace feroce::gas
