// Sentences for what the C ABI refused.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

#include "feroce/error.hpp"

namespace feroce::rdma {

// What failed, and errno's word for why.
inline Error failure(const std::string& what, int code = errno) {
    return {code, what + ": " + std::strerror(code)};
}

// The same of the first call that needs a device, with what to do if that is what is missing.
inline Error no_device(const std::string& what, int code = errno) {
    const bool missing = code == ENODEV || code == ENOENT || code == ENXIO || code == ENOSYS;
    const char* const advice =
        ": this machine has no RDMA device; start the program by `feroce run` for a soft one";
    return failure(missing ? what + advice : what, code);
}

}  // namespace feroce::rdma
