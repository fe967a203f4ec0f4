// AnyOrder: while lint asks for it, the device places the bytes of a message in an order of its
// own, its last bytes first, as cards may. A program that polls memory for the last byte and trusts
// the others then reads what is not there yet; and lint finds out whether it does
// (lint/order_trial.hpp).
//
// One for an instance: a forked child gets a new one, so what other threads of the parent held is
// not found held there. mem::Watch calls it with a shard's lock held, so it never takes the lint's.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

#include "base/random.hpp"
#include "lint/order_trial.hpp"
#include "mem/watch.hpp"

namespace feroce::verbs {

class AnyOrder {
public:
    AnyOrder();

    bool place(std::byte* at, const std::byte* from, std::size_t size, mem::Watch::Store store);
    // Before the program posts. True if it is shown now that it trusts the order of bytes, once.
    bool posts();

private:
    using Hold = lint::OrderTrial::Hold;

    Hold begin(std::size_t held);
    void wait(Hold hold);

    std::mutex mutex_;  // Guards the next two.
    lint::OrderTrial trial_;
    Prng random_;
    std::atomic<bool> busy_{false};            // A placement waits, or is about to.
    std::atomic<Hold> window_{Hold::Nothing};  // What is held back while it waits.
};

}  // namespace feroce::verbs
