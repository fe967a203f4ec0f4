// The machine's interfaces as devices see them, in the current network namespace.
#pragma once

#include <string_view>
#include <vector>

#include "host/host.hpp"

namespace feroce::port {

// Those that have an address: that of the default route first, loopback last. `only` is a comma
// separated list of names, empty for all.
std::vector<host::Interface> list_interfaces(std::string_view only);

}  // namespace feroce::port
