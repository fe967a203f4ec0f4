// How locks that are waited for in a queue are taken. The attempt runs in a shelter of the lanes: a
// caller that gives up has its error at once, and a turn that is won after that is released.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "feroce/gas/lanes.hpp"
#include "feroce/gas/ptr.hpp"
#include "feroce/shelter.hpp"

namespace feroce::gas::detail {

// Looks at the own place between two looks at the home node, which may be lost. About a second.
inline constexpr unsigned kLooksBlind = 1024;

// The turn that an attempt won; null if the lock was not free.
template <class Turn>
const Turn* won_by(const Turn& turn) {
    return &turn;
}
template <class Turn>
const Turn* won_by(const std::optional<Turn>& turn) {
    return turn ? &*turn : nullptr;
}
template <class Place>
const ptr<Place>* won_by(const ptr<Place>& place) {
    return place ? &place : nullptr;
}

// Answer is void for lock() and bool for try_lock(). `own` and `held` are the handle's: an attempt
// that wins nothing leaves them alone, since another task may hold the lock by the same handle.
// `release` gives a task, and refers to nothing of the handle.
template <class Answer, class Outcome, class Release, class Turn>
rdma::Task<Result<Answer>> hold(Lanes& lanes, rdma::Task<Result<Outcome>> attempt, Release release,
                                Turn& own, bool& held) {
    const auto undo = [release](Outcome outcome) -> rdma::Task<void> {
        if (const Turn* turn = won_by(outcome)) static_cast<void>(co_await release(*turn));
    };
    rdma::Shelter sheltered(lanes.shelter(), std::move(attempt), undo);
    const auto outcome = co_await sheltered;
    if (!outcome) co_return outcome.error();
    const Turn* turn = won_by(*outcome);
    if (turn != nullptr) {
        own = *turn;
        held = true;
    }
    if constexpr (std::is_void_v<Answer>)
        co_return Result<>();
    else
        co_return turn != nullptr;
}

}  // namespace feroce::gas::detail
