// `feroce export`: serves disks to RNBD clients until it is asked to end.
#pragma once

#include <functional>

#include "cli/export_config.hpp"
#include "feroce/loop.hpp"

namespace feroce::cli {

struct ConfigSource {
    std::string file;  // Empty: there is none, and nothing to read again.
    // Makes the config of the file as it is now, and of the command line; throws UsageError.
    std::function<ExportConfig()> read;
};

// The exit status: 0 after SIGTERM or SIGINT, when everything is on disk. SIGHUP and `feroce export
// --reload` have the config read again.
int serve_exports(const ConfigSource& source);

// What a back end throws, and memory that is missing, fails one request (docs/storage.md): a line
// on stderr tells of it, and the loop goes on.
void go_on_after_exceptions(rdma::Loop& loop);

}  // namespace feroce::cli
