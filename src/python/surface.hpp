// What every function of the C surface goes through: no exception leaves it, because ctypes would
// end the process.
#pragma once

#include <exception>

#include "python/call.hpp"
#include "python/feroce_python.h"
#include "python/home.hpp"

namespace feroce::python {

// One that begins a call: the call fails instead. 0 if there is no memory for that either.
template <class Body>
feroce_handle begun(feroce_handle queue, Body&& body) noexcept {
    try {
        try {
            return body();
        } catch (...) {
            return failed_call(queue, error_of(std::current_exception()));
        }
    } catch (...) {
        return 0;
    }
}

// Another one.
template <class Answer, class Body>
Answer answered(Answer failed, Body&& body) noexcept {
    try {
        return body();
    } catch (...) {
        return failed;
    }
}

}  // namespace feroce::python
