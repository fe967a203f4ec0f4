// Result<T>: a value, or the caller's mistake as an errno with one sentence that says why.
// Mistakes of a peer or of the network are not errors but data (Nak, WcStatus, DropReason).
// The names are those of std::expected, so that this file can become a `using` one day (ADR 0002).
#pragma once

#include <utility>
#include <variant>

#include "base/assert.hpp"

namespace feroce {

struct Error {
    int code = 0;          // An errno value: EINVAL, ENOMEM, EBUSY...
    const char* why = "";  // Static text for the log: what failed and what to do about it.
};

template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, error) {}

    bool has_value() const { return state_.index() == 0; }
    explicit operator bool() const { return has_value(); }

    T& value() {
        ASSERT(has_value());
        return *std::get_if<0>(&state_);
    }
    const T& value() const {
        ASSERT(has_value());
        return *std::get_if<0>(&state_);
    }
    T& operator*() { return value(); }
    const T& operator*() const { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    Error error() const {
        ASSERT(!has_value());
        return *std::get_if<1>(&state_);
    }

private:
    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
public:
    Result() = default;
    Result(Error error) : error_(error), failed_(true) {}

    bool has_value() const { return !failed_; }
    explicit operator bool() const { return has_value(); }
    Error error() const {
        ASSERT(failed_);
        return error_;
    }

private:
    Error error_;
    bool failed_ = false;
};

}  // namespace feroce

// Hands an error on to the caller; for functions that return a Result themselves.
#define TRY(expression)                                                                         \
    do {                                                                                        \
        if (auto try_result = (expression); !try_result.has_value()) return try_result.error(); \
    } while (false)
