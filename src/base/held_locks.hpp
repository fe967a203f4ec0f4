// How many of our locks the calling thread holds. A test asks it that must see no allocation while
// there is one (src/verbs/locked_allocations_test.cpp). Counted only in builds that watch
// (FEROCE_WATCH_LOCKS: Debug and sanitizers); in all others these calls are nothing.
#pragma once

namespace feroce::held_locks {

#if defined(FEROCE_WATCH_LOCKS)
inline constinit thread_local int count = 0;
inline void taken() {
    ++count;
}
inline void released() {
    --count;
}
#else
inline void taken() {}
inline void released() {}
#endif

}  // namespace feroce::held_locks
