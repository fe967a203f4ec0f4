// Counts every allocation of the program it is linked into (counting_new.cpp replaces operator
// new).
#pragma once

#include <cstdint>

namespace feroce::bench {

std::uint64_t allocations();  // Since the start.

}  // namespace feroce::bench
