// Asks the kernel as whom a process comes (host/identity.hpp). Nothing else does.
#pragma once

#include <cstdint>

#include "host/identity.hpp"

namespace feroce::port {

using host::Identity;
using host::Sharing;

// Of the calling thread, now.
Identity capture_identity(Sharing sharing);
// The network namespace that the calling thread is in: each thread may be in one of its own.
std::uint64_t network_of_caller();

}  // namespace feroce::port
