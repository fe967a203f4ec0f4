// `feroce session`: the sessions of this user's live programs, shown and changed.
#pragma once

#include <string>
#include <vector>

#include "cli/output.hpp"

namespace feroce::cli {

// The exit status.
int session(const std::vector<std::string>& words, const OutputOptions& options);

}  // namespace feroce::cli
