// Unreported: while one lives, Valgrind says nothing about what this thread touches. For probes
// that ask of whole pages whether they are there, beyond what the program has allocated. A few
// instructions without effect where Valgrind does not run, none if its header was not there.
#pragma once

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif

namespace feroce::mem {

class Unreported {
public:
#if defined(VALGRIND_DISABLE_ERROR_REPORTING)
    Unreported() {
        VALGRIND_DISABLE_ERROR_REPORTING;
    }
    ~Unreported() {
        VALGRIND_ENABLE_ERROR_REPORTING;
    }
#else
    Unreported() {}
    ~Unreported() {}
#endif
    Unreported(const Unreported&) = delete;
    Unreported& operator=(const Unreported&) = delete;
};

}  // namespace feroce::mem
