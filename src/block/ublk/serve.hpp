// A server's disk as a block device of this machine, /dev/ublkbN, by the kernel's ublk.
#pragma once

#include <functional>
#include <string>

#include "block/disk_wish.hpp"

namespace feroce::block::ublk {

// Opens the disk and serves it until SIGTERM or SIGINT comes, or until somebody stops the device.
// `told` hears its path when it is there.
rdma::Result<> serve(const DiskWish& wish,
                     const std::function<void(const std::string& path)>& told);

// "/dev/ublkb" and a number.
inline constexpr char kDevicePrefix[] = "/dev/ublkb";

}  // namespace feroce::block::ublk
