// Calls for which there is no memory. Each is made again and again, with its first, second,
// third... allocation failing, until it needs no more: it fails with ENOMEM, leaves nothing behind,
// and works when it is made again.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

namespace feroce::starved {

// The `after` allocations of this thread that come next succeed and one more fails.
void fail_allocation(long after);
bool end_failing();   // True if it has failed.
long blocks_alive();  // Allocated and not freed by this thread.

// The same of the threads that are not the test's: ours. Or all of theirs fail, until they are fed.
void fail_allocation_of_others(long after);
void fail_all_of_others();
bool others_have_failed();
void feed_others();

struct Case {
    const char* name;
    std::function<void()> prepare = [] {};
    std::function<bool()> call;  // False with errno set if it fails.
    std::function<void()> undo;
    bool needs_memory = true;
    bool tells_codes_of_its_own = false;  // Not errno.
    bool may_fail = true;                 // False: it makes room, and must not need memory.
    bool goes_on = false;  // What was done by then stays, and the call made again goes on there.
};

inline constexpr long kAllocationsMax = 20'000;
// Destroyed objects are kept for a while, and queues grow: by then all of that has its size.
inline constexpr int kWarmUps = 40;

inline void starve(const Case& c) {
    SCOPED_TRACE(c.name);
    for (int i = 0; i < kWarmUps; ++i) {
        c.prepare();
        ASSERT_TRUE(c.call()) << errno;
        c.undo();
    }
    long failures = 0;
    for (long n = 0; n < kAllocationsMax; ++n) {
        const long at_first = blocks_alive();
        c.prepare();
        const long before = blocks_alive();
        errno = 0;
        fail_allocation(n);
        const bool good = c.call();
        const int code = errno;
        const long after = blocks_alive();
        const bool failed = end_failing();
        if (!good) {
            ++failures;
            EXPECT_TRUE(c.may_fail) << n;
            EXPECT_TRUE(failed) << n;
            if (!c.tells_codes_of_its_own) {
                EXPECT_EQ(code, ENOMEM) << n;
            }
            if (!c.goes_on) {
                EXPECT_LE(after, before) << n;
            }
            ASSERT_TRUE(c.call()) << n << ": made again it fails with " << errno;
        }
        c.undo();
        if (c.goes_on) {
            EXPECT_LE(blocks_alive(), at_first) << n;
        }
        if (!failed) break;
    }
    if (c.needs_memory) {
        EXPECT_GT(failures, 0) << "the call takes no memory, or not this allocator's";
    }
}

}  // namespace feroce::starved
