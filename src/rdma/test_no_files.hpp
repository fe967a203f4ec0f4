// For tests of what a process without any descriptor left can do.
#pragma once

#include <sys/resource.h>

namespace feroce::rdma {

// While it lives no file can be opened; those that are open stay so.
class NoFiles {
public:
    NoFiles() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        rlimit none = before_;
        none.rlim_cur = 0;
        ::setrlimit(RLIMIT_NOFILE, &none);
    }
    ~NoFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    NoFiles(const NoFiles&) = delete;
    NoFiles& operator=(const NoFiles&) = delete;

private:
    rlimit before_{};
};

}  // namespace feroce::rdma
