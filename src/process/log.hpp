// The log: one sentence a line on stderr, for people. FEROCE_LOG=off|error|warn|info|debug picks
// the level; the default says only what a person must know. Any thread.
#pragma once

#include <cstdint>

#include "base/result.hpp"

namespace feroce::transport {
class QueuePair;
}  // namespace feroce::transport

namespace feroce::process {

enum class LogLevel : std::uint8_t { Off, Error, Warn, Info, Debug };

bool log_enabled(LogLevel level);
bool log_level_is_known();  // False if FEROCE_LOG asks for one that there is not.
[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...);

// A call that fails tells its caller by the number it returns and by errno, whichever the program
// looks at, and people why at warn level. Sets errno and returns it.
// The state page keeps it: `feroce explain`. The call and the sentence live for ever.
int refuse(const char* call, const Error& error);
int refuse(const char* call, const Error& error, const transport::QueuePair& about);

// For a library that has no process object of its own: who tells the state page instead.
using RefusalKeeper = void (*)(const char* call, const Error& error);
void keep_refusals(RefusalKeeper keeper);

}  // namespace feroce::process
