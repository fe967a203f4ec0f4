// Shared words: eight aligned bytes that the CPU of their home node and the NICs of other nodes use
// at the same time. On most NICs an atomic is atomic only against other atomics of the same NIC, so
// a word belongs to one of three kinds, and what may be done to it follows from the kind:
//
//            CPU of the home node                         other nodes, through the NIC
//   cpu<T>   load, store, exchange, compare_exchange,     read, write
//            fetch_add
//   nic<T>   load                                         read, write, atomics
//   plain<T> load, store                                  read, write
//
// A mix that could lose an update does not compile. (A CPU store into a nic word while a NIC works
// on it can be lost, a NIC's write into a cpu word cannot.) Where a device's atomics are global, as
// the soft device's are, Lanes runs atomics on nic words of the own node on the CPU by itself.
//
// All CPU accesses are sequentially consistent: Peterson's algorithm in ALock needs a store to be
// seen before a later load, and on arm64 nothing weaker gives that.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "feroce/gas/ptr.hpp"

namespace feroce::gas {

template <class T>
concept WordValue = Shareable<T> && sizeof(T) == 8 && alignof(T) <= 8;

namespace detail {

// Called before every access of the CPU to a shared word, so that a simulation can let others run
// there. Null in programs. Set while no other thread runs.
inline void (*before_shared_access)() = nullptr;

inline void shared_access() {
    if (before_shared_access != nullptr) [[unlikely]]
        before_shared_access();
}

// The raw eight bytes. atomic_ref would do, but needs a const_cast to load in C++20.
class alignas(8) Cell {
public:
    constexpr Cell() = default;
    constexpr explicit Cell(std::uint64_t bits) : bits_(bits) {}

    std::uint64_t load() const {
        shared_access();
        return __atomic_load_n(&bits_, __ATOMIC_SEQ_CST);
    }
    void store(std::uint64_t bits) {
        shared_access();
        __atomic_store_n(&bits_, bits, __ATOMIC_SEQ_CST);
    }
    std::uint64_t exchange(std::uint64_t bits) {
        shared_access();
        return __atomic_exchange_n(&bits_, bits, __ATOMIC_SEQ_CST);
    }
    // Returns what it found: equal to `expected` if it was replaced.
    std::uint64_t compare_exchange(std::uint64_t expected, std::uint64_t desired) {
        shared_access();
        __atomic_compare_exchange_n(&bits_, &expected, desired, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
        return expected;
    }
    std::uint64_t fetch_add(std::uint64_t amount) {
        shared_access();
        return __atomic_fetch_add(&bits_, amount, __ATOMIC_SEQ_CST);
    }

private:
    std::uint64_t bits_ = 0;
};

}  // namespace detail

template <WordValue T>
class cpu {  // NOLINT(readability-identifier-naming): read like std::atomic.
public:
    using Value = T;
    constexpr cpu() = default;
    constexpr explicit cpu(T value) : cell_(std::bit_cast<std::uint64_t>(value)) {}

    T load() const { return std::bit_cast<T>(cell_.load()); }
    void store(T value) { cell_.store(std::bit_cast<std::uint64_t>(value)); }
    T exchange(T value) {
        return std::bit_cast<T>(cell_.exchange(std::bit_cast<std::uint64_t>(value)));
    }
    T compare_exchange(T expected, T desired) {
        return std::bit_cast<T>(cell_.compare_exchange(std::bit_cast<std::uint64_t>(expected),
                                                       std::bit_cast<std::uint64_t>(desired)));
    }
    T fetch_add(T amount) requires std::is_integral_v<T> {
        return std::bit_cast<T>(cell_.fetch_add(std::bit_cast<std::uint64_t>(amount)));
    }

private:
    detail::Cell cell_;
};

template <WordValue T>
class nic {  // NOLINT(readability-identifier-naming): read like std::atomic.
public:
    using Value = T;
    constexpr nic() = default;
    constexpr explicit nic(T value) : cell_(std::bit_cast<std::uint64_t>(value)) {}

    T load() const { return std::bit_cast<T>(cell_.load()); }

private:
    detail::Cell cell_;
};

template <WordValue T>
class plain {  // NOLINT(readability-identifier-naming): read like std::atomic.
public:
    using Value = T;
    constexpr plain() = default;
    constexpr explicit plain(T value) : cell_(std::bit_cast<std::uint64_t>(value)) {}

    T load() const { return std::bit_cast<T>(cell_.load()); }
    void store(T value) { cell_.store(std::bit_cast<std::uint64_t>(value)); }

private:
    detail::Cell cell_;
};

namespace detail {

template <class T>
struct WordTraits {
    static constexpr bool is_word = false;
    using Value = T;
};
template <class T>
struct WordTraits<cpu<T>> {
    static constexpr bool is_word = true;
    using Value = T;
};
template <class T>
struct WordTraits<nic<T>> {
    static constexpr bool is_word = true;
    using Value = T;
};
template <class T>
struct WordTraits<plain<T>> {
    static constexpr bool is_word = true;
    using Value = T;
};

template <class T>
inline constexpr bool is_nic = false;
template <class T>
inline constexpr bool is_nic<nic<T>> = true;

}  // namespace detail

// What reading through a ptr<T> gives: the value for words, the object for everything else.
template <class T>
using value_of = typename detail::WordTraits<T>::Value;

static_assert(sizeof(nic<std::uint64_t>) == 8 && Shareable<nic<std::uint64_t>>);

}  // namespace feroce::gas
