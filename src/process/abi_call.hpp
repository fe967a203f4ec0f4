// What every call of the C ABI that takes memory goes through, and where it fails if FEROCE_FAULTS
// asks for it. Containers tell by an exception that
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
#include "process/injected.hpp"
#include "process/log.hpp"

namespace feroce::process {

inline constexpr Error kNoMemory{ENOMEM, "out of memory"};

// How a call that returns a number tells of failure. Others return null, or zero.
enum class FailAs : std::uint8_t { Code, NegativeCode, MinusOne };

template <FailAs kFailAs, class Answer>
Answer failed_call(const char* call, const Error& error) {
    [[maybe_unused]] const int code = refuse(call, error);
    if constexpr (std::is_class_v<Answer>) {
        return Answer(error);  // A Result.
    } else if constexpr (std::is_signed_v<Answer>) {
        if constexpr (kFailAs == FailAs::MinusOne) return -1;
        return static_cast<Answer>(kFailAs == FailAs::Code ? code : -code);
    } else if constexpr (!std::is_void_v<Answer>) {
        return Answer{};
    }
}

// Does `body`, unless FEROCE_FAULTS wants the call to fail. It may also be left by a cancellation,
// which is none of the exceptions here.
template <FailAs kFailAs = FailAs::Code, class Body>
auto within_memory(const char* call, Body&& body) -> std::invoke_result_t<Body&> {
    using Answer = std::invoke_result_t<Body&>;
    if (call_faults() != nullptr) [[unlikely]]
        if (const InjectedFailure fault = fail_call(call); fault.error.code != 0)
            return failed_call<kFailAs, Answer>(fault.call, fault.error);
    const annotate::OwnCalls part;
    try {
        return body();
    } catch (const std::bad_alloc&) {
    } catch (const std::length_error&) {  // More than any memory.
    }
    return failed_call<kFailAs, Answer>(call, kNoMemory);
}

// The same, for a call that does not wait: its thread is not cancelled meanwhile.
template <FailAs kFailAs = FailAs::Code, class Body>
auto abi_call(const char* call, Body&& body) -> std::invoke_result_t<Body&> {
    const Uncancelled part;
    return within_memory<kFailAs>(call, body);
}

}  // namespace feroce::process
