// The hot half of the guard, for touch.cpp alone: is this thread known to be in Direct mode?
#pragma once

#include <atomic>
#include <cstdint>

#include "mem/guard.hpp"
#include "mem/watch.hpp"

namespace feroce::mem {

// Grows when the handler was found lost, so that every thread looks anew.
extern std::atomic<std::uint32_t> guard_epoch;
// The epoch in which this thread was found to be in Direct mode; 0 is none. initial-exec, because a
// shared library would else call into the loader for each access; it costs 4 bytes of static TLS.
extern constinit thread_local std::uint32_t guard_thread_epoch
    __attribute__((tls_model("initial-exec")));

inline bool guard_is_direct() noexcept {
    // relaxed: a stale epoch only delays what guard_recheck() found by one access.
    return guard_thread_epoch == guard_epoch.load(std::memory_order_relaxed);
}

// Null unless lint or a sanitizer watches: see watch.hpp.
extern std::atomic<const Watch*> guard_watch;
// The epoch in which this thread was found to be in Direct mode while it is watched.
extern constinit thread_local std::uint32_t guard_watched_epoch
    __attribute__((tls_model("initial-exec")));

// Installs if need be and looks; remembers Direct.
GuardMode guard_look() noexcept;

}  // namespace feroce::mem
