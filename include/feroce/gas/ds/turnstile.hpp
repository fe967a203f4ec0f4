// Turnstile: a courtesy between threads that race for a container without locks. Those of its own
// node are faster than others. A thread of another node that has lost to them a few times asks for
// its turn, and they wait for it, though not for long: it may have died. Nothing fails for want of
// a turn.
#pragma once

#include <chrono>
#include <cstdint>

#include "feroce/gas/lanes.hpp"
#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas::detail {

class Turnstile {
public:
    // Of one operation of a thread of another node.
    struct Turn {
        unsigned losses = 0;
        std::uint64_t claim = 0;  // Not 0: asked for.
        std::uint64_t found = 0;  // In its place.
    };

    // The word says which claim asks the threads of its node to wait; 0: none.
    Turnstile(Lanes& lanes, ptr<nic<std::uint64_t>> word)
        : lanes_(&lanes), word_(word), home_(lanes.local(word)) {}

    // Threads of the word's node wait here while somebody else has its turn.
    rdma::Task<Result<>> give_way() {
        const std::uint64_t claim = home_ == nullptr ? 0 : home_->load();
        if (claim == 0) co_return Result<>();
        Backoff backoff(*lanes_);
        const Instant end = lanes_->loop().after(kTurnTime);
        while (home_->load() == claim && lanes_->loop().now() < end)
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
        if (home_->load() == claim) co_return co_await clear(claim);
        co_return Result<>();
    }
    // Turns are asked for, and given back, on the way of something else. After another loss again:
    // the time may be over.
    void ask(Chain& step, Turn& turn) {
        if (home_ != nullptr || turn.losses < kLossesBeforeTurn) return;
        if (turn.claim == 0) turn.claim = lanes_->new_claim();
        step.compare_exchange(word_, 0, turn.claim, turn.found);
    }
    void give_back(Chain& step, Turn& turn) {
        if (turn.claim != 0) step.compare_exchange(word_, turn.claim, 0, turn.found);
    }
    // A turn that cannot be given back on the way of anything.
    rdma::Task<void> end(Turn turn) {
        if (turn.claim != 0) static_cast<void>(co_await clear(turn.claim));
    }
    rdma::Task<Error> end_with(Turn turn, Error why) {
        co_await end(turn);
        co_return why;
    }

private:
    static constexpr unsigned kLossesBeforeTurn = 2;
    // Longer than an operation takes, and short where its thread has died.
    static constexpr Duration kTurnTime = std::chrono::milliseconds(1);

    rdma::Task<Result<>> clear(std::uint64_t claim) {
        const auto found = co_await lanes_->compare_exchange(word_, claim, 0).shielded();
        if (!found) co_return found.error();
        co_return Result<>();
    }

    Lanes* lanes_;
    ptr<nic<std::uint64_t>> word_;
    const nic<std::uint64_t>* home_;  // On the word's node only.
};

}  // namespace feroce::gas::detail
