// Turn: which thread is within a call on an object that its caller promised to use by one thread at
// a time. Calls are short, so two of them seldom meet by chance: once two threads have used an
// object, the edge makes some of its calls longer, and a program without a lock is found out. One
// with a lock is only slower.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "lint/words.hpp"

namespace feroce::lint {

class Turn {
public:
    static constexpr std::uint32_t kLongCallsMax = 256;  // Of one object.

    enum class Entry : std::uint8_t { Free, Long, Crowded };
    Entry enter(Thread thread);
    void leave(Thread thread);

private:
    Thread inside_ = 0;  // 0: none.
    Thread last_ = 0;
    std::uint32_t long_calls_ = 0;
    bool several_ = false;
};

// Lists of work requests that two threads have posted. A thread that is over may have left its
// stack to another, so this alone is no mistake.
class SharedLists {
public:
    static constexpr std::size_t kListsMax = 1024;
    // Of all lists together: a program may have any number of them, and be correct.
    static constexpr std::uint32_t kLongCallsMax = 256;

    bool posted(Handle list, Thread thread);  // Whether the call shall be a long one.

private:
    struct List {
        Thread last = 0;
        bool several = false;
    };
    std::map<Handle, List> lists_;
    std::uint32_t long_calls_ = 0;
};

}  // namespace feroce::lint
