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

inline Transferred result_of(const Request& request) {
    if (request.error == 0) return request.moved;
    std::string why = request.text.empty() ? request.why : "the server says: " + request.text;
    return rdma::Error(request.error, why + " (" + std::strerror(request.error) + ")");
}

}  // namespace feroce::rtrs
