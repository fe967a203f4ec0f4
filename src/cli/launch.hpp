// `feroce launch -n N -- CMD ARGS`: a cluster on this machine. Starts N processes on the soft
// device, tells each its rank by FEROCE_GAS_*, and shows their output line by line with the rank
// before it.
#pragma once

#include <string>
#include <vector>

namespace feroce::cli {

// The words after `launch`. The status is that of the first process that failed; 0 if none did.
int launch(const std::vector<std::string>& words);

}  // namespace feroce::cli
