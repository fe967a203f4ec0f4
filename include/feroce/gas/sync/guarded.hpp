// Guarded<Content>: what containers are made of: content that readers see whole without a lock, in
// one round trip, and that writers change under a lock in two: one that locks and reads, one that
// writes and unlocks. The version is odd while the content changes; readers look at it before and
// after, as three READs done in this order, since the words of one READ come in any order.
//
// A lock is a lease. A writer that dies leaves it behind, and a writer that has seen the same claim
// on it for as long as a lease and its grace takes it over. A change is one WRITE of at most one
// packet on usual networks, so the content is then the old one or the new one, and only the version
// has to be made even. A writer that is late gives up by itself (ESTALE): it looks at the clock
// before it writes, and the grace is for what is in flight then.
//
// Limits of the caller end the wait for a lock. A lock that was asked for is waited for, and one
// that was taken is given back: neither is left behind because a deadline passed (limits.hpp), nor
// because the holder's coroutine was destroyed or threw (Claim).
#pragma once

#include <cerrno>
#include <utility>

#include "feroce/gas/lanes.hpp"
#include "feroce/gas/limits.hpp"
#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {
namespace detail {

// A claim on a lock: a word that is, or may be, in the word of the lock. If it is destroyed while
// it is armed, a task of the lanes takes it back behind all that its thread has posted to that
// node: a change on its way is made first, and a lock that somebody else has stays as it is.
class Claim {
public:
    Claim(Lanes& lanes, ptr<nic<std::uint64_t>> lock)
        : lanes_(&lanes), lock_(lock), value_(lanes.new_claim()) {}
    Claim(Claim&& other) noexcept
        : lanes_(other.lanes_),
          lock_(other.lock_),
          value_(other.value_),
          armed_(std::exchange(other.armed_, false)) {}
    Claim& operator=(Claim&&) = delete;
    ~Claim() {
        if (armed_) lanes_->shelter().spawn(take_back(*lanes_, lock_, value_));
    }

    std::uint64_t value() const { return value_; }
    void arm() { armed_ = true; }
    void disarm() { armed_ = false; }

private:
    static rdma::Task<void> take_back(Lanes& lanes, ptr<nic<std::uint64_t>> lock,
                                      std::uint64_t value) {
        // Fails where the node is lost.
        static_cast<void>(co_await lanes.compare_exchange(lock, value, 0));
    }

    Lanes* lanes_;
    ptr<nic<std::uint64_t>> lock_;
    std::uint64_t value_;
    bool armed_ = false;
};

}  // namespace detail

template <Shareable Content>
class Guarded {
public:
    struct alignas(64) Block {
        nic<std::uint64_t> locked;     // By which claim; 0: none.
        plain<std::uint64_t> version;  // Odd while the content changes.
        Content content{};
    };
    struct Hold {  // Given back when it is destroyed, unless that was done before.
        detail::Claim claim;
        ptr<Block> block;
        std::uint64_t version = 0;  // Even.
        bool repairs = false;       // The version in memory is odd: its writer died.
        Instant until{};            // The lease.
    };

    explicit Guarded(Lanes& lanes) : lanes_(&lanes) {}

    static ptr<Content> content_of(ptr<Block> block) {
        return block.template field<&Block::content>();
    }
    static ptr<plain<std::uint64_t>> version_of(ptr<Block> block) {
        return block.template field<&Block::version>();
    }

    // Gives the version that `into` belongs to.
    rdma::Task<Result<std::uint64_t>> read(ptr<Block> block, Content& into) {
        Backoff backoff(*lanes_);
        for (unsigned looks = 0; looks < kLooks; ++looks) {
            std::uint64_t before = 0, after = 0;
            auto step = lanes_->chain(block.node());
            step.read(version_of(block), before).read(content_of(block), into);
            step.read(version_of(block), after);
            if (const auto done = co_await step; !done) co_return done.error();
            if (before == after && before % 2 == 0) co_return before;
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        }
        // Writers are always faster, or the last one died.
        auto hold = co_await lock(block, into);
        if (!hold) co_return hold.error();
        const std::uint64_t version = hold->version;
        if (const auto freed = co_await unlock(*std::move(hold)); !freed) co_return freed.error();
        co_return version;
    }

    rdma::Task<Result<Hold>> lock(ptr<Block> block, Content& into) {
        Backoff backoff(*lanes_);
        Watch watch(*lanes_);
        detail::Claim claim(*lanes_, lock_of(block));
        for (std::uint64_t expected = 0;;) {
            if (const auto in_time = co_await within_limits(lanes_->loop()); !in_time)
                co_return in_time.error();
            const Instant asked = lanes_->loop().now();
            std::uint64_t found = 0, version = 0;
            auto step = lanes_->chain(block.node());
            step.compare_exchange(lock_of(block), expected, claim.value(), found);
            step.read(version_of(block), version).read(content_of(block), into);
            claim.arm();
            const auto done = co_await step.shielded();
            if (!done || found != expected) claim.disarm();
            if (!done) co_return done.error();
            if (found == expected)
                co_return Hold{std::move(claim), block, version + version % 2, version % 2 != 0,
                               asked + lanes_->lease().time};
            expected = found != 0 && watch.expired(found) ? found : 0;
            if (expected != 0) continue;
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        }
    }

    rdma::Task<Result<>> unlock(Hold hold) {
        if (late(hold)) co_return lost();
        auto step = lanes_->chain(hold.block.node());
        if (hold.repairs) step.write(version_of(hold.block), hold.version);
        step.write(lock_of(hold.block), 0);
        const auto done = co_await step.shielded();
        hold.claim.disarm();
        co_return done;
    }
    // For a writer that cannot go on: unlocks, and gives the reason back.
    rdma::Task<Error> give_up(Hold hold, Error why) {
        // Fails where the lock is no longer ours.
        static_cast<void>(co_await unlock(std::move(hold)));
        co_return why;
    }
    // ESTALE if the lease is over: write nothing.
    Result<> check(const Hold& hold) const {
        if (late(hold)) return lost();
        return {};
    }

    // Writes a part of the content, or all of it, and keeps the lock.
    template <Shareable T>
    rdma::Task<Result<>> change(Hold& hold, ptr<T> where, const T& value) {
        static_assert(sizeof(T) <= kChainBytes, "a change is one packet");
        if (late(hold)) co_return lost();
        auto step = lanes_->chain(hold.block.node());
        step.write(version_of(hold.block), hold.version + 1).write(where, value);
        step.write(version_of(hold.block), hold.version + 2);
        hold.version += 2;
        hold.repairs = false;
        co_return co_await step.shielded();
    }
    // The same, and unlocks.
    template <Shareable T>
    rdma::Task<Result<>> store(Hold hold, ptr<T> where, const T& value) {
        static_assert(sizeof(T) <= kChainBytes, "a change is one packet");
        if (late(hold)) co_return lost();
        auto step = lanes_->chain(hold.block.node());
        step.write(version_of(hold.block), hold.version + 1).write(where, value);
        step.write(version_of(hold.block), hold.version + 2);
        step.write(lock_of(hold.block), 0);
        const auto done = co_await step.shielded();
        hold.claim.disarm();
        co_return done;
    }

private:
    static constexpr unsigned kLooks = 256;

    static ptr<nic<std::uint64_t>> lock_of(ptr<Block> block) {
        return block.template field<&Block::locked>();
    }

    bool late(const Hold& hold) const { return lanes_->loop().now() >= hold.until; }
    static Error lost() {
        return {ESTALE, "the change took longer than the lease of its lock; nothing was changed"};
    }

    Lanes* lanes_;
};

}  // namespace feroce::gas
