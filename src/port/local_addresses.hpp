// LocalAddresses: which addresses are this network's own, so that what is sent to them never leaves
// the machine. Kept up to date by one thread, asked by others.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "host/host.hpp"

namespace feroce::port {

class LocalAddresses {
public:
    // None: the list could not be had, and the last one stays.
    void set(const std::vector<host::Interface>& interfaces);
    // Changes with each set(): what connect() said before may not be true any more.
    std::uint32_t version() const { return version_.load(std::memory_order_acquire); }
    // Whether packets from one to the other stay here, and may be sent: both are ours.
    bool connect(const Gid& source, const Gid& destination) const;
    // The index of the interface that has it; 0 if none does, as far as is known.
    std::uint32_t interface_of(const Gid& gid) const;
    bool holds(const Gid& gid) const;

private:
    bool has(const Gid& gid) const;
    bool share_a_link(const Gid& a, const Gid& b) const;

    mutable std::mutex mutex_;                              // Guards what follows.
    std::vector<std::pair<Gid, std::uint32_t>> addresses_;  // With the index of the interface.
    std::atomic<std::uint32_t> version_{0};
};

}  // namespace feroce::port
