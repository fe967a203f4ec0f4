// How a request ended, in words.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

#include "feroce/error.hpp"
#include "feroce/rtrs/request.hpp"

namespace feroce::rtrs {

// `code` is ETIMEDOUT or ECANCELED.
inline const char* why_given_up(int code) {
    return code == ETIMEDOUT ? "its deadline passed" : "the program asked to stop waiting";
}

inline rdma::Error not_made(int code) {
    return {code, "the request was given up before it was made"};
}

inline rdma::Result<> result_of(const Request& request) {
    if (request.error == 0) return {};
    return rdma::Error(request.error,
                       std::string(request.why) + " (" + std::strerror(request.error) + ")");
}

}  // namespace feroce::rtrs
