// Extended completion queues: polled one completion at a time through function pointers.
#pragma once

#include <cstdint>

#include "verbs/objects.hpp"

namespace feroce::verbs {

void fill_extended_operations(Cq& cq, std::uint64_t wc_flags);

}  // namespace feroce::verbs
