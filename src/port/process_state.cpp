#include "port/process_state.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "port/fd.hpp"

namespace feroce::port {

ProcessState state_of(pid_t pid) {
    char path[32];
    std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
    const Fd file(pid > 0 ? ::open(path, O_RDONLY | O_CLOEXEC) : -1);
    char text[256];
    const ssize_t n = file.valid() ? ::read(file.get(), text, sizeof text) : -1;
    if (n <= 0) return ProcessState::Unknown;
    // "PID (COMMAND) STATE ...", where the command may hold any character.
    const std::string_view line(text, static_cast<std::size_t>(n));
    const std::size_t at = line.rfind(") ");
    if (at == line.npos || at + 2 >= line.size()) return ProcessState::Unknown;
    const char state = line[at + 2];
    return state == 'T' || state == 't' ? ProcessState::Stopped : ProcessState::Running;
}

}  // namespace feroce::port
