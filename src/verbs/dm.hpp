// Device memory under a second name, for ibv_import_dm.
#pragma once

#include <cstdint>

#include "verbs/abi.hpp"

namespace feroce::verbs {

ibv_dm* share_dm(ibv_context* context, std::uint32_t handle);  // Null if there is none.
void unshare_dm(ibv_dm* dm);

}  // namespace feroce::verbs
