// Counts the allocations of each thread of the program it is linked into (counting_new.cpp replaces
// operator new): the device's own threads, which publish its state now and then, are not the
// caller's data path.
#pragma once

#include <cstdint>

namespace feroce::bench {

std::uint64_t allocations();  // Of this thread, since its start.

// What the best of a few rounds allocates. Pools grow to the deepest they were ever used at, which
// timing decides, so an early round may still grow one; a request that allocates does so in all.
template <typename Round>
std::uint64_t allocations_once_warm(Round&& round) {
    std::uint64_t made = 1;
    for (int i = 0; i < 10 && made != 0; ++i) {
        const std::uint64_t before = allocations();
        round();
        made = allocations() - before;
    }
    return made;
}

}  // namespace feroce::bench
