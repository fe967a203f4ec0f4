// For tests that wait for something without a task of its own: drives a loop until it holds.
#pragma once

#include <chrono>

#include "feroce/loop.hpp"

namespace feroce::rdma {

// False after half a minute. By time, not by rounds: a loop that has just had news spins, and does
// thousands of rounds before anything of another thread can happen.
template <class Condition>
bool poll_until(Loop& loop, Condition holds) {
    const Instant end = loop.after(std::chrono::seconds(30));
    while (!holds() && loop.now() < end)
        loop.poll_or_wait(loop.after(std::chrono::milliseconds(10)));
    return holds();
}

}  // namespace feroce::rdma
