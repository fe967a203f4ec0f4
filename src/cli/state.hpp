// The Feroce processes of this user, as their state pages show them.
#pragma once

#include <vector>

#include "process/state_page.hpp"

namespace feroce::cli {

std::vector<process::StateReading> all_processes();    // Ended ones that left a reason, too.
std::vector<process::StateSnapshot> live_processes();  // Says on stderr who does not answer.

}  // namespace feroce::cli
