// The doors of programs with sessions (rtrs/control_names.hpp): who is there, and what they say.
#pragma once

#include <string>
#include <vector>

#include "cli/output.hpp"

namespace feroce::cli {

// A session of a program, as the program describes it, with pid and comm in front.
struct LiveSession {
    std::string door;  // The program's socket.
    std::string name;
    Json record;
};

// Of all programs that answer; says on stderr who does not. Sockets of dead ones are removed.
std::vector<LiveSession> live_sessions();

// Asks a program to do something; the sentence with which it refuses, empty if it did it.
std::string tell(const std::string& door, const std::vector<std::string>& words);

}  // namespace feroce::cli
