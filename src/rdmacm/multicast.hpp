// Multicast groups of an id.
#pragma once

#include "rdmacm/objects.hpp"

namespace feroce::rdmacm {

void leave_all_groups(CmId& id);

}  // namespace feroce::rdmacm
