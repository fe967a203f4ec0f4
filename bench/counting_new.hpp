// Counts the allocations of each thread of the program it is linked into (counting_new.cpp replaces
// operator new): the device's own threads, which publish its state now and then, are not the
// caller's data path.
#pragma once

#include <cstdint>

namespace feroce::bench {

std::uint64_t allocations();  // Of this thread, since its start.

}  // namespace feroce::bench
