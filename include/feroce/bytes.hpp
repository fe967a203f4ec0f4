// Bytes of what programs have: texts, and values without padding. For messages and data of
// sessions, where everything travels as bytes:
//
//     session.write("key", value).wait();    // The same as with bytes_of("key"), bytes_of(value).
//     session.read("key", value).wait();
//     const std::string key(text_of(request.message()));
//     if (auto asked = value_of<Question>(request.message())) answer(*asked);
//
// A view each: what it is of must stay until it is used no more.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace feroce::rdma {

namespace detail {

// A range is a view of its elements as a rule, and its own bytes are an address.
template <class T>
struct IsPlain
    : std::bool_constant<
          !std::is_pointer_v<T> && !std::ranges::range<T> && std::is_trivially_copyable_v<T> &&
          (std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>)> {};
template <class T, std::size_t count>
struct IsPlain<T[count]> : IsPlain<T> {};
template <class T, std::size_t count>
struct IsPlain<std::array<T, count>> : IsPlain<T> {};

template <class T>
concept BytesAlready = std::is_convertible_v<const T&, std::span<const std::byte>>;
template <class T>
concept WritableAlready = std::is_convertible_v<T, std::span<std::byte>>;

}  // namespace detail

// Means the same to another process of the same architecture. Padding would tell the peer what lay
// there before; pointers inside of structures are not found out.
template <class T>
concept PlainValue = detail::IsPlain<std::remove_cv_t<T>>::value;

inline std::span<const std::byte> bytes_of(std::span<const std::byte> bytes) {
    return bytes;
}
inline std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}
// Up to its end, and without that: "key" has three bytes.
template <std::size_t size>
std::span<const std::byte> bytes_of(const char (&text)[size]) {
    return bytes_of(std::string_view(text, ::strnlen(text, size)));
}
template <PlainValue T>
requires(!detail::BytesAlready<T> && !std::is_convertible_v<const T&, std::string_view>)
    std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

inline std::span<std::byte> writable_bytes_of(std::span<std::byte> bytes) {
    return bytes;
}
inline std::span<std::byte> writable_bytes_of(std::string& text) {  // As long as it is.
    return std::as_writable_bytes(std::span(text));
}
template <PlainValue T>
requires(!std::is_const_v<T> &&
         !detail::WritableAlready<T&>) std::span<std::byte> writable_bytes_of(T& value) {
    return std::as_writable_bytes(std::span(&value, 1));
}

template <class T>
concept HasBytes = requires(const T& from) {
    bytes_of(from);
};
template <class T>
concept HasWritableBytes = requires(T& into) {
    writable_bytes_of(into);
};

// For functions that take bytes and also these: not both arguments are bytes already.
template <class Message, class From>
concept NeedBytes = HasBytes<Message> && HasBytes<From> &&
    !(detail::BytesAlready<Message> && detail::BytesAlready<From>);
// What is filled must be there afterwards.
template <class Message, class Into>
concept NeedWritableBytes = HasBytes<Message> && HasWritableBytes<std::remove_reference_t<Into>> &&
    (std::is_lvalue_reference_v<Into> ||
     detail::WritableAlready<Into>)&&!(detail::BytesAlready<Message> &&
                                       detail::WritableAlready<Into>);

inline std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
// Nothing if it has another size: it is no such value.
template <PlainValue T>
std::optional<T> value_of(std::span<const std::byte> bytes) {
    if (bytes.size() != sizeof(T)) return std::nullopt;
    std::optional<T> out(std::in_place);
    std::memcpy(&*out, bytes.data(), sizeof(T));
    return out;
}

}  // namespace feroce::rdma
