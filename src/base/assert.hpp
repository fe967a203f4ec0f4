// ASSERT: for what cannot fail unless we made a mistake. Always on, release builds included:
// a soft NIC that goes on after a broken invariant would corrupt somebody's memory.
#pragma once

namespace feroce {

[[noreturn]] void assert_failed(const char* condition, const char* file, int line);

}  // namespace feroce

#define ASSERT(condition)                                            \
    do {                                                             \
        if (!(condition)) [[unlikely]]                               \
            ::feroce::assert_failed(#condition, __FILE__, __LINE__); \
    } while (false)
