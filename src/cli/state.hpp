// The Feroce processes of this user, as their state pages show them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "process/state_page.hpp"

namespace feroce::cli {

std::vector<process::StateReading> all_processes();    // Ended ones that left a reason, too.
std::vector<process::StateSnapshot> live_processes();  // Says on stderr who does not answer.

// Empty if it is not known.
std::string device_of(const process::StateSnapshot& process, const process::StateQp& qp);

const char* type_name(std::uint8_t type);    // Of a queue pair: StateQp::type.
const char* state_name(std::uint8_t state);  // Of a queue pair: StateQp::state.

}  // namespace feroce::cli
