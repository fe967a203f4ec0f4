// Result<T, E>: a value, or an error that says in words why there is none. The one result type of
// every room and of programs; what differs is E: below the waist Error with static text, above it
// rdma::Error. The names are those of std::expected, so that this file can become a `using` one
// day (ADR 0002). Using the value of a failed result prints the sentence and aborts.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace feroce {

struct Error {
    int code = 0;          // An errno value: EINVAL, ENOMEM, EBUSY...
    const char* why = "";  // Static text for the log: what failed and what to do about it.
};

// Says what was ignored, and aborts.
[[noreturn]] void no_value(const char* why);
[[noreturn]] void no_error();

namespace detail {

inline const char* words(const char* text) {
    return text;
}
inline const char* words(const std::string& text) {
    return text.c_str();
}

}  // namespace detail

template <class T, class E = Error>
class [[nodiscard]] Result {
public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(E error) : state_(std::in_place_index<1>, std::move(error)) {}

    bool has_value() const { return state_.index() == 0; }
    explicit operator bool() const { return has_value(); }

    T& value() & {
        check();
        return *std::get_if<0>(&state_);
    }
    const T& value() const& {
        check();
        return *std::get_if<0>(&state_);
    }
    T&& value() && {
        check();
        return std::move(*std::get_if<0>(&state_));
    }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    const E& error() const {
        if (has_value()) [[unlikely]]
            no_error();
        return *std::get_if<1>(&state_);
    }

private:
    void check() const {
        if (!has_value()) [[unlikely]]
            no_value(detail::words(std::get_if<1>(&state_)->why));
    }

    std::variant<T, E> state_;
};

template <class E>
class [[nodiscard]] Result<void, E> {
public:
    Result() = default;
    Result(E error) : error_(std::move(error)) {}

    bool has_value() const { return !error_.has_value(); }
    explicit operator bool() const { return has_value(); }
    void value() const {
        if (error_) [[unlikely]]
            no_value(detail::words(error_->why));
    }
    const E& error() const {
        if (!error_) [[unlikely]]
            no_error();
        return *error_;
    }

private:
    std::optional<E> error_;
};

}  // namespace feroce
