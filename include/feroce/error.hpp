// What goes wrong above the waist, as a value: an errno for programs, a sentence for people (what
// failed, why, what to do), and what the device or the peer told.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "feroce/result.hpp"

namespace feroce::rdma {

struct Error {
    Error(int errno_code, std::string sentence) : code(errno_code), why(std::move(sentence)) {}
    Error(const feroce::Error& error) : code(error.code), why(error.why) {}

    int code;         // An errno value. ETIMEDOUT and ECANCELED: the caller's limits.
    std::string why;  // On the soft device with the chain of reasons.
    // Of the work completion that failed; IBV_WC_SUCCESS if it was none.
    ibv_wc_status status = IBV_WC_SUCCESS;
    // A peer that refused a connection: its reason (IBTA's number) and what it sent with it.
    int reject_reason = 0;
    std::vector<std::byte> reject_data;
};

template <class T = void>
using Result = feroce::Result<T, Error>;

}  // namespace feroce::rdma
