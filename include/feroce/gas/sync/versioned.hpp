// Versioned<T>: a value of any size that readers see whole without a lock, in one round trip. The
// version is odd while somebody writes. A reader reads the version, the value and the version
// again, as three READs that are done in this order; words within one READ may be read in any
// order, so versions inside the value would not do.
//
// A writer locks by making the version odd, and unlocks with the WRITE behind that of the value:
// two round trips. Writers are not fair.
#pragma once

#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {

template <Shareable T>
requires(sizeof(T) + 16 <= kChainBytes) class Versioned {
public:
    struct Cell {
        nic<std::uint64_t> locked;
        plain<std::uint64_t> version;
        T value{};
    };

    Versioned(Lanes& lanes, ptr<Cell> cell) : lanes_(lanes), cell_(cell) {}

    rdma::Task<Result<T>> read() {
        Backoff backoff(lanes_);
        for (;;) {
            std::uint64_t before = 0, after = 0;
            T value{};
            auto step = lanes_.chain(cell_.node());
            step.read(version(), before).read(content(), value).read(version(), after);
            if (const auto done = co_await step; !done) co_return done.error();
            if (before == after && before % 2 == 0) co_return value;
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        }
    }

    // Replaces the value by what the function makes of it.
    template <class Change>
    rdma::Task<Result<T>> update(Change change) {
        Backoff backoff(lanes_);
        for (;;) {
            std::uint64_t found = 0, before = 0;
            T value{};
            auto take = lanes_.chain(cell_.node());
            take.compare_exchange(lock(), 0, 1, found);
            take.read(version(), before).read(content(), value);
            if (const auto done = co_await take; !done) co_return done.error();
            if (found == 0) {
                value = change(value);
                auto give = lanes_.chain(cell_.node());
                give.write(version(), before + 1).write(content(), value);
                give.write(version(), before + 2).write(lock(), 0);
                if (const auto done = co_await give; !done) co_return done.error();
                co_return value;
            }
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        }
    }

private:
    ptr<nic<std::uint64_t>> lock() const { return cell_.template field<&Cell::locked>(); }
    ptr<plain<std::uint64_t>> version() const { return cell_.template field<&Cell::version>(); }
    ptr<T> content() const { return cell_.template field<&Cell::value>(); }

    Lanes& lanes_;
    ptr<Cell> cell_;
};

}  // namespace feroce::gas
