// Versioned<T>: a value of any size up to a chain's that readers see whole without a lock, in one
// round trip; a change costs two. Writers are not fair. See Guarded for how, and for what happens
// when a writer dies.
#pragma once

#include <utility>

#include "feroce/gas/call.hpp"
#include "feroce/gas/sync/guarded.hpp"

namespace feroce::gas {

template <Shareable T>
class Versioned {
public:
    using Cell = typename Guarded<T>::Block;

    Versioned(Lanes& lanes, ptr<Cell> cell) : lanes_(&lanes), guarded_(lanes), cell_(cell) {}

    Call<T> read() { return {lanes_->loop(), reading()}; }
    // Replaces the value by what the function makes of it.
    template <class Change>
    Call<T> update(Change change) {
        return {lanes_->loop(), updating(std::move(change))};
    }

private:
    rdma::Task<Result<T>> reading() {
        T value{};
        const auto version = co_await guarded_.read(cell_, value);
        if (!version) co_return version.error();
        co_return value;
    }
    template <class Change>
    rdma::Task<Result<T>> updating(Change change) {
        T value{};
        auto hold = co_await guarded_.lock(cell_, value);
        if (!hold) co_return hold.error();
        value = change(value);
        const auto done =
            co_await guarded_.store(*std::move(hold), Guarded<T>::content_of(cell_), value);
        if (!done) co_return done.error();
        co_return value;
    }

    Lanes* lanes_;
    Guarded<T> guarded_;
    ptr<Cell> cell_;
};

}  // namespace feroce::gas
