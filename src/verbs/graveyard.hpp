// Destroyed objects stay readable for a while, under a context that refuses everything: a program
// that destroys twice, or posts to what it has destroyed, gets ENODEV and not somebody else's
// memory. The last few of each type are kept; then the memory goes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "verbs/objects.hpp"

namespace feroce::verbs {

// The context of objects that are no more: not alive(), and without optional operations.
ibv_context* dead_context();

// `context` is the object's public pointer to its context.
template <class T>
void bury(T& object, ibv_context*& context) {
    constexpr std::uint32_t kGraves = 32;
    static std::array<std::atomic<T*>, kGraves> graves{};
    static std::atomic<std::uint32_t> next{0};
    context = dead_context();
    // acq_rel: whoever deletes an object sees all that the thread did which buried it.
    const std::uint32_t place = next.fetch_add(1, std::memory_order_relaxed) % kGraves;
    delete graves[place].exchange(&object, std::memory_order_acq_rel);
}

}  // namespace feroce::verbs
