// The names of the abstract unix sockets by which connection managers find each other. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/gid.hpp"

namespace feroce::port {

// Who has leased a service, which is a port of a port space, on an address.
inline std::string lease_name(std::uint32_t user, std::uint64_t service, const Gid& address) {
    return "feroce-cm-" + std::to_string(user) + "-" + std::to_string(service) + "-" +
           to_string(address);
}

// The addresses on which a service that `destination` reaches can be leased.
inline std::vector<Gid> leasable_addresses(const Gid& destination) {
    if (destination.is_v4()) return {destination, Gid::from_v4(0), Gid{}};
    return {destination, Gid{}};
}

// Where a process gets what is offered to all. Slots are unique among those that share the port.
inline std::string mailbox_name(std::uint32_t user, std::uint32_t slot) {
    return "feroce-cm-" + std::to_string(user) + "-slot-" + std::to_string(slot);
}

}  // namespace feroce::port
