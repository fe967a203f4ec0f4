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

// What all kinds have in common: everybody may look.
template <WordValue T>
class Word {
public:
    using Value = T;
    constexpr Word() = default;
    constexpr explicit Word(T value) : cell_(std::bit_cast<std::uint64_t>(value)) {}

    T load() const { return std::bit_cast<T>(cell_.load()); }

protected:
    Cell cell_;
};

}  // namespace detail

template <WordValue T>
class cpu : public detail::Word<T> {  // NOLINT(readability-identifier-naming): like std::atomic.
public:
    using detail::Word<T>::Word;

    void store(T value) { this->cell_.store(std::bit_cast<std::uint64_t>(value)); }
    T exchange(T value) {
        return std::bit_cast<T>(this->cell_.exchange(std::bit_cast<std::uint64_t>(value)));
    }
    T compare_exchange(T expected, T desired) {
        return std::bit_cast<T>(this->cell_.compare_exchange(
            std::bit_cast<std::uint64_t>(expected), std::bit_cast<std::uint64_t>(desired)));
    }
    T fetch_add(T amount) requires std::is_integral_v<T> {
        return std::bit_cast<T>(this->cell_.fetch_add(std::bit_cast<std::uint64_t>(amount)));
    }
};

template <WordValue T>
class nic : public detail::Word<T> {  // NOLINT(readability-identifier-naming): like std::atomic.
public:
    using detail::Word<T>::Word;
};

template <WordValue T>
class plain : public detail::Word<T> {  // NOLINT(readability-identifier-naming): like std::atomic.
public:
    using detail::Word<T>::Word;

    void store(T value) { this->cell_.store(std::bit_cast<std::uint64_t>(value)); }
};

namespace detail {

template <class T>
struct ValueOf {
    using Type = T;
};
template <class T>
requires std::is_base_of_v<Word<typename T::Value>, T>
struct ValueOf<T> {
    using Type = typename T::Value;
};

template <class T>
inline constexpr bool is_nic = false;
template <class T>
inline constexpr bool is_nic<nic<T>> = true;

}  // namespace detail

// What reading through a ptr<T> gives: the value for words, the object for everything else.
template <class T>
using value_type_of = typename detail::ValueOf<T>::Type;

static_assert(sizeof(nic<std::uint64_t>) == 8 && Shareable<nic<std::uint64_t>>);

}  // namespace feroce::gas
