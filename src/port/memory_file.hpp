// Files in memory that processes share.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

namespace feroce::port {

// Whether this process may make a file so large (RLIMIT_FSIZE): one that tries gets a signal.
inline bool may_make_file(off_t size) {
    rlimit limit{};
    return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= static_cast<rlim_t>(size);
}

}  // namespace feroce::port
