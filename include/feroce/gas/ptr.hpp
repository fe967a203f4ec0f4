// gas::ptr<T>: where a T lives in the memory of a cluster, in one 64-bit word: 16 bits of node, 48
// bits of address. It cannot be dereferenced: reaching the object is an operation that says whether
// it crosses the network, and may fail. Null is all bits zero; no object has address 0.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

namespace feroce::gas {

// What may live in shared memory: bytes that mean the same to every node.
template <class T>
concept Shareable = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>;

enum class NodeId : std::uint16_t {};

namespace detail {

// Memory of the right shape that is never constructed: only addresses within it are taken.
template <class T>
union Shape {
    constexpr Shape() : nothing{} {}
    std::byte nothing;
    T object;
};
template <class T>
inline Shape<T> shape;

template <auto Member>
struct MemberOf;
template <class Class, class Field, Field Class::*Member>
struct MemberOf<Member> {
    using Owner = Class;
    using Type = Field;
};

template <class Field>
struct ArrayOf;
template <class T, std::size_t count>
struct ArrayOf<T[count]> {
    using Element = T;
    static constexpr std::size_t kSize = count;
};
template <class T, std::size_t count>
struct ArrayOf<std::array<T, count>> : ArrayOf<T[count]> {};

template <auto Member>
std::uint64_t offset_of_member() {
    using Owner = typename MemberOf<Member>::Owner;
    const auto* base = reinterpret_cast<const std::byte*>(&shape<Owner>);
    const auto* field = reinterpret_cast<const std::byte*>(&(shape<Owner>.object.*Member));
    return static_cast<std::uint64_t>(field - base);
}

}  // namespace detail

template <class T>
class span;

template <class T>
class ptr {  // NOLINT(readability-identifier-naming): read like std::span.
public:
    using Element = T;
    static constexpr unsigned kAddressBits = 48;

    constexpr ptr() = default;
    constexpr ptr(std::nullptr_t) {}
    constexpr ptr(NodeId node, std::uint64_t address)
        : bits_(static_cast<std::uint64_t>(node) << kAddressBits | (address & kAddressMask)) {}

    static constexpr ptr from_bits(std::uint64_t bits) {
        ptr out;
        out.bits_ = bits;
        return out;
    }
    constexpr std::uint64_t bits() const { return bits_; }
    constexpr NodeId node() const { return static_cast<NodeId>(bits_ >> kAddressBits); }
    constexpr std::uint64_t address() const { return bits_ & kAddressMask; }
    constexpr explicit operator bool() const { return bits_ != 0; }

    // p.field<&Node::next>() points at that member.
    template <auto Member>
    auto field() const {
        static_assert(std::is_same_v<typename detail::MemberOf<Member>::Owner, T>,
                      "the field belongs to another type");
        return ptr<typename detail::MemberOf<Member>::Type>(
            node(), address() + detail::offset_of_member<Member>());
    }
    // p.elements<&Node::links>() are those of a member that is an array.
    template <auto Member>
    auto elements() const {
        using Array = detail::ArrayOf<typename detail::MemberOf<Member>::Type>;
        using Item = typename Array::Element;
        return span<Item>(field<Member>().template as<Item>(), Array::kSize);
    }
    // The same place, seen as another type: for raw memory and headers before objects.
    template <class U>
    constexpr ptr<U> as() const {
        return ptr<U>(node(), address());
    }

    constexpr ptr& operator+=(std::ptrdiff_t count) {
        return *this = ptr(node(), address() + static_cast<std::uint64_t>(count) * kStride);
    }
    constexpr ptr& operator-=(std::ptrdiff_t count) { return *this += -count; }
    constexpr ptr& operator++() { return *this += 1; }
    constexpr ptr& operator--() { return *this += -1; }
    friend constexpr ptr operator+(ptr p, std::ptrdiff_t count) { return p += count; }
    friend constexpr ptr operator-(ptr p, std::ptrdiff_t count) { return p -= count; }
    // Of two elements of one array.
    friend constexpr std::ptrdiff_t operator-(ptr a, ptr b) {
        return static_cast<std::ptrdiff_t>(a.bits_ - b.bits_) /
               static_cast<std::ptrdiff_t>(kStride);
    }
    constexpr ptr operator[](std::size_t index) const {
        return *this + static_cast<std::ptrdiff_t>(index);
    }

    friend constexpr bool operator==(ptr, ptr) = default;
    friend constexpr std::strong_ordering operator<=>(ptr, ptr) = default;

private:
    static constexpr std::uint64_t kAddressMask = (std::uint64_t{1} << kAddressBits) - 1;
    static constexpr std::uint64_t kStride = [] {
        if constexpr (std::is_void_v<T>)
            return std::uint64_t{1};
        else
            return std::uint64_t{sizeof(T)};
    }();

    std::uint64_t bits_ = 0;
};

static_assert(sizeof(ptr<int>) == 8 && Shareable<ptr<int>>);

// `size` objects side by side on one node.
template <class T>
class span {  // NOLINT(readability-identifier-naming): read like std::span.
public:
    constexpr span() = default;
    constexpr span(ptr<T> data, std::size_t size) : data_(data), size_(size) {}

    constexpr ptr<T> data() const { return data_; }
    constexpr std::size_t size() const { return size_; }
    constexpr std::size_t size_bytes() const { return size_ * sizeof(T); }
    constexpr bool empty() const { return size_ == 0; }
    constexpr ptr<T> operator[](std::size_t index) const { return data_[index]; }
    // Clamped to what there is.
    constexpr span subspan(std::size_t first, std::size_t count) const {
        const std::size_t from = first < size_ ? first : size_;
        return {data_[from], count < size_ - from ? count : size_ - from};
    }

private:
    ptr<T> data_;
    std::size_t size_ = 0;
};

}  // namespace feroce::gas

template <class T>
struct std::hash<feroce::gas::ptr<T>> {
    std::size_t operator()(feroce::gas::ptr<T> p) const noexcept {
        return std::hash<std::uint64_t>{}(p.bits());
    }
};
