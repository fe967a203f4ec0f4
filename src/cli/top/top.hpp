// `feroce top`: a live table of what RDMA does on this machine.
#pragma once

#include "cli/output.hpp"
#include "cli/top/screen.hpp"

namespace feroce::cli {

int top(const TopOptions& options, const OutputOptions& output);  // The exit status.

}  // namespace feroce::cli
