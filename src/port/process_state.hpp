// Whether another process is stopped, by a signal or a debugger, as /proc tells.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace feroce::port {

// Unknown: there is no such process, or its state is hidden from this one.
enum class ProcessState : std::uint8_t { Running, Stopped, Unknown };

ProcessState state_of(pid_t pid);

}  // namespace feroce::port
