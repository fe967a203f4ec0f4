// Which address of this machine packets to another leave from.
#pragma once

#include <cstdint>

#include "base/gid.hpp"
#include "base/result.hpp"

namespace feroce::port {

// As the kernel's routing table says; a link-local destination needs its scope.
Result<Gid> route_source(const Gid& destination, std::uint32_t scope);

}  // namespace feroce::port
