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

}  // namespace feroce::rdma
