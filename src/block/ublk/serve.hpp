// A server's disk as a block device of this machine, /dev/ublkbN, by the kernel's ublk.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "feroce/block/client.hpp"

namespace feroce::block::ublk {

struct Wish {
    std::string session;
    std::vector<rtrs::PathAddress> servers;
    std::string disk;
    AccessMode access = AccessMode::ReadWrite;
    rtrs::SessionOptions options;
};

// Opens the disk and serves it until SIGTERM or SIGINT comes, or until somebody stops the device.
// `told` hears its path when it is there.
rdma::Result<> serve(const Wish& wish, const std::function<void(const std::string& path)>& told);

// "/dev/ublkb" and a number.
inline constexpr char kDevicePrefix[] = "/dev/ublkb";

}  // namespace feroce::block::ublk
