// Scratch: room for N values that nobody has written yet. An array of a type with default values
// would write them all first, which costs the data path more than the few that are then used.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace feroce {

template <class T, std::size_t N>
class Scratch {
public:
    // Such a type's lifetime begins with the first assignment.
    static_assert(std::is_aggregate_v<T> && std::is_trivially_copyable_v<T>);

    std::span<T, N> span() { return std::span<T, N>(reinterpret_cast<T*>(bytes_), N); }

private:
    alignas(T) std::byte bytes_[N * sizeof(T)];
};

}  // namespace feroce
