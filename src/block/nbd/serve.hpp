// A server's disk for NBD clients of this machine, at a unix socket.
#pragma once

#include <functional>
#include <string>

#include "block/disk_wish.hpp"

namespace feroce::block::nbd {

// Opens the disk and serves it at `socket`, which does not exist yet, until SIGTERM or SIGINT
// comes. `told` is called when clients may come. Leaves nothing at the path.
rdma::Result<> serve(const DiskWish& wish, const std::string& socket,
                     const std::function<void()>& told);

}  // namespace feroce::block::nbd
