#include "port/local_addresses.hpp"

#include <algorithm>

#include "port/address.hpp"

namespace feroce::port {
namespace {

// All of 127.0.0.0/8 is loopback's, though it has one address only.
bool is_loopback(const Gid& gid) {
    return gid.is_v4() && gid.v4() >> 24 == 127;
}

}  // namespace

void LocalAddresses::set(const std::vector<host::Interface>& interfaces) {
    if (interfaces.empty()) return;
    std::vector<std::pair<Gid, std::uint32_t>> addresses;
    // Of links without carrier as well: the kernel delivers to its own addresses all the same.
    for (const host::Interface& interface : interfaces)
        for (const Gid& gid : interface.gids) addresses.emplace_back(gid, interface.index);
    const std::lock_guard lock(mutex_);
    addresses_.swap(addresses);
    version_.fetch_add(1, std::memory_order_release);
}

bool LocalAddresses::has(const Gid& gid) const {
    return is_loopback(gid) ||
           std::any_of(addresses_.begin(), addresses_.end(),
                       [&gid](const auto& address) { return address.first == gid; });
}

// A link-local address is somebody else's on another link.
bool LocalAddresses::share_a_link(const Gid& a, const Gid& b) const {
    for (const auto& [gid, link] : addresses_)
        if (gid == a &&
            std::find(addresses_.begin(), addresses_.end(), std::pair(b, link)) != addresses_.end())
            return true;
    return false;
}

bool LocalAddresses::connect(const Gid& source, const Gid& destination) const {
    const std::lock_guard lock(mutex_);
    if (is_link_local(destination)) return share_a_link(source, destination);
    return has(source) && has(destination);
}

std::uint32_t LocalAddresses::interface_of(const Gid& gid) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [own, interface] : addresses_)
        if (own == gid) return interface;
    return 0;
}

bool LocalAddresses::holds(const Gid& gid) const {
    const std::lock_guard lock(mutex_);
    return has(gid);
}

}  // namespace feroce::port
