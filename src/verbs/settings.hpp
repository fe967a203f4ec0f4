// What the FEROCE_* variables of a program's environment ask for. One that is not understood keeps
// devices closed, with a sentence that names it: what the user wanted would silently not happen.
#pragma once

#include "port/real_host.hpp"
#include "verbs/instance.hpp"

namespace feroce::verbs {

struct Settings {
    port::RealHost::Options host;
    Instance::Wishes wishes;
};

Settings read_settings();

}  // namespace feroce::verbs
