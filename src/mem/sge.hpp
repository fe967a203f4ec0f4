// Sge: one piece of a work request's buffer, as the application posted it; checked only when
// touched.
#pragma once

#include <cstdint>

#include "base/ids.hpp"

namespace feroce::mem {

struct Sge {
    std::uint64_t address = 0;  // In the region's address space (iova), not yet a pointer.
    std::uint32_t length = 0;   // Zero: the entry is skipped and its key not looked at.
    LKey lkey;
};

}  // namespace feroce::mem
