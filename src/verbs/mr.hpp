// Registering memory, for the call families that end in a region.
#pragma once

#include "mem/memory.hpp"
#include "verbs/objects.hpp"

namespace feroce::verbs {

ibv_mr* register_region(const char* call, ibv_pd* pd, mem::RegionSpec spec);

}  // namespace feroce::verbs
