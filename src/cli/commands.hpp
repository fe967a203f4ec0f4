// The `feroce` command: its words, what they take, and who does them. `run` and `launch` are taken
// before any parsing: what follows belongs to the program.
#pragma once

namespace feroce::cli {

// What main() gets; the exit status.
int do_command(int argc, char** argv);

}  // namespace feroce::cli
