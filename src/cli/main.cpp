// All of it is in commands.cpp, which is joined with what else reads the parser's headers.
#include "cli/commands.hpp"

int main(int argc, char** argv) {
    return feroce::cli::do_command(argc, argv);
}
