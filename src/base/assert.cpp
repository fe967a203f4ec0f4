#include "base/assert.hpp"

#include <cstdio>
#include <cstdlib>

#include "feroce/result.hpp"

namespace feroce {

void assert_failed(const char* condition, const char* file, int line) {
    std::fprintf(stderr, "feroce: internal error, please report: %s does not hold at %s:%d\n",
                 condition, file, line);
    std::abort();
}

void no_value(const char* why) {
    std::fprintf(stderr, "feroce: the program uses a value that it did not get: %s\n", why);
    std::abort();
}

void no_error() {
    std::fprintf(stderr, "feroce: the program asks a result that succeeded for its error\n");
    std::abort();
}

}  // namespace feroce
