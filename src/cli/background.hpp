// Serving a disk from a process of ours in the background, which tells by a pipe how it went.
#pragma once

#include <functional>
#include <string>

#include "feroce/error.hpp"

namespace feroce::cli {

// Serves until it is ended; calls `told` with what the user shall read when the disk is there.
using ServeDisk =
    std::function<rdma::Result<>(const std::function<void(const std::string&)>& told)>;

// Prints what is told, or complains. Returns then, or, in the foreground, when it was ended. The
// exit status.
int serve_disk(bool foreground, const ServeDisk& serve);

}  // namespace feroce::cli
