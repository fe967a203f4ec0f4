// The doors of programs with sessions (rtrs/control_names.hpp): who is there, and what they say.
#pragma once

#include <string>
#include <string_view>
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
// The same, but says who does not answer by their pids, and nothing on stderr.
std::vector<LiveSession> live_sessions(std::vector<unsigned>& silent);

// The doors of this user's programs whose names begin so. Those of dead ones are removed.
std::vector<std::string> doors(std::string_view prefix);
unsigned pid_of(const std::string& door);
bool has_ended(const std::string& door);  // Nobody is behind it any more.
// What the program behind a door answers; empty if it does not. Doors of dead ones are removed.
std::string ask(const std::string& door, const std::vector<std::string>& words);

// Asks a program to do something; the sentence with which it refuses, empty if it did it.
std::string tell(const std::string& door, const std::vector<std::string>& words,
                 int patience_seconds = 1);

}  // namespace feroce::cli
