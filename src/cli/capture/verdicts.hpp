// What the facts of a capture mean, in the words of `feroce explain`. Pure.
#pragma once

#include <optional>
#include <vector>

#include "cli/capture/story.hpp"

namespace feroce::cli {

// `end`: when the capture ends.
std::vector<CaptureFinding> verdicts(const Flow& flow, Duration end);
std::optional<CaptureFinding> verdict(const Exchange& exchange, Duration end);
std::vector<CaptureFinding> verdicts(const Gid& source, const Gid& destination, const Road& road);

}  // namespace feroce::cli
