// The half of `feroce attach` and `feroce detach` where the disk is a block device of this machine,
// by the kernel's ublk.
#pragma once

#include <string>

#include "cli/attach.hpp"

namespace feroce::cli {

// Whether the kernel has it and lets us use it; `why` says why not.
bool has_ublk(std::string& why);
bool is_ublk_device(const std::string& path);
// As attach() and detach().
int attach_ublk(const AttachOptions& options);
int detach_ublk(const std::string& path);

}  // namespace feroce::cli
