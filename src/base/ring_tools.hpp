// What a Ring does not do itself because it never allocates: move to another size, and lose
// elements out of its middle. Both keep the order of what stays.
#pragma once

#include <cstddef>
#include <utility>

#include "base/assert.hpp"
#include "base/ring.hpp"

namespace feroce {

template <class T>
void regrow(Ring<T>& ring, std::size_t capacity) {
    ASSERT(capacity >= ring.size());
    Ring<T> larger(capacity);
    for (; !ring.empty(); ring.pop()) larger.push(ring.front());
    ring = std::move(larger);
}

template <class AnyRing, class Predicate>
void remove_if(AnyRing& ring, Predicate&& predicate) {
    for (std::size_t n = ring.size(); n > 0; --n) {
        const auto value = ring.front();
        ring.pop();
        if (!predicate(value)) ring.push(value);
    }
}

}  // namespace feroce
