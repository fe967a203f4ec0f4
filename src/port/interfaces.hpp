// The machine's interfaces as devices see them, in the current network namespace.
#pragma once

#include <string_view>
#include <vector>

#include "host/host.hpp"

namespace feroce::port {

// Those that have an address: that of the default route first, loopback last. `only` is a comma
// separated list of names, empty for all.
std::vector<host::Interface> list_interfaces(std::string_view only);

// Whether `word` is in `text` with neither a letter, a digit nor an underscore beside it.
bool has_word(std::string_view text, std::string_view word);
// Whether it is in the arguments or the environment of this program. The environment of a program
// with more privilege than its caller says nothing.
bool program_names(std::string_view word);

}  // namespace feroce::port
