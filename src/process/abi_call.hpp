// What every call of the C ABI that takes memory goes through. Containers tell by an exception that
// there is none; it passes our locks, which let go, and ends here as ENOMEM. Programs in C could do
// nothing with it, and it must not meet another library's C++ runtime.
#pragma once

#include <cerrno>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <type_traits>

#include "base/annotate.hpp"
#include "base/result.hpp"
#include "base/uncancelled.hpp"
#include "process/log.hpp"

namespace feroce::process {

inline constexpr Error kNoMemory{ENOMEM, "out of memory"};

// How a call that returns a number tells of failure. Others return null, or zero.
enum class FailAs : std::uint8_t { Code, NegativeCode, MinusOne };

// Does `body`. It may also be left by a cancellation, which is none of the exceptions here.
template <FailAs kFailAs = FailAs::Code, class Body>
auto within_memory(const char* call, Body&& body) -> std::invoke_result_t<Body&> {
    using Answer = std::invoke_result_t<Body&>;
    const annotate::OwnCalls part;
    try {
        return body();
    } catch (const std::bad_alloc&) {
    } catch (const std::length_error&) {  // More than any memory.
    }
    [[maybe_unused]] const int code = refuse(call, kNoMemory);
    if constexpr (std::is_class_v<Answer>) {
        return Answer(kNoMemory);  // A Result.
    } else if constexpr (std::is_signed_v<Answer>) {
        if constexpr (kFailAs == FailAs::MinusOne) return -1;
        return static_cast<Answer>(kFailAs == FailAs::Code ? code : -code);
    } else if constexpr (!std::is_void_v<Answer>) {
        return Answer{};
    }
}

// The same, for a call that does not wait: its thread is not cancelled meanwhile.
template <FailAs kFailAs = FailAs::Code, class Body>
auto abi_call(const char* call, Body&& body) -> std::invoke_result_t<Body&> {
    const Uncancelled part;
    return within_memory<kFailAs>(call, body);
}

}  // namespace feroce::process
