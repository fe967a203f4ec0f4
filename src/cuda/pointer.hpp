// What the driver says of an address: whose memory it is.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "cuda/driver.hpp"

namespace feroce::cuda {

struct Place {
    bool on_device = false;     // Else the CPU reaches it: host, pinned, mapped or managed memory.
    Context context = nullptr;  // On a device: one in which it can be copied.
    // The allocation's own number; 0 if the range lies in several, or the driver does not tell.
    std::uint64_t allocation = 0;
};

// ENODEV: the memory is a device's that cannot be used.
Result<Place> place_of(const Driver& driver, Address address, std::uint64_t length);

// Whether a part of a registered range is still what it was. Frees are not told to us.
bool still_there(const Driver& driver, const Place& place, Address address, std::uint64_t length);

}  // namespace feroce::cuda
