#include "base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace feroce {

void assert_failed(const char* condition, const char* file, int line) {
    std::fprintf(stderr, "feroce: internal error, please report: %s does not hold at %s:%d\n",
                 condition, file, line);
    std::abort();
}

}  // namespace feroce
