// `feroce export`: serves disks to RNBD clients until it is asked to end.
#pragma once

#include "cli/export_config.hpp"

namespace feroce::cli {

// The exit status: 0 after SIGTERM or SIGINT, when everything is on disk.
int serve_exports(const ExportConfig& config);

}  // namespace feroce::cli
