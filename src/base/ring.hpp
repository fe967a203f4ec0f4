// Ring<T>: a first-in first-out queue whose capacity is fixed at creation; never allocates after.
// Owned by one thread or guarded by its owner's lock. Small, and the words that say whether there
// is anything come first: most looks at a queue pair's rings find them empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "base/assert.hpp"

namespace feroce {

template <class T>
class Ring {
public:
    explicit Ring(std::size_t capacity)
        : capacity_(static_cast<std::uint32_t>(capacity)), slots_(std::make_unique<T[]>(capacity)) {
        ASSERT(capacity <= std::numeric_limits<std::uint32_t>::max() / 2);
    }

    std::size_t capacity() const { return capacity_; }
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    bool full() const { return size_ == capacity_; }

    T& push() {  // The new last element, holding whatever its slot held before.
        ASSERT(!full());
        return slots_[place(size_++)];
    }
    void push(const T& value) { push() = value; }
    void pop() {
        ASSERT(!empty());
        head_ = place(1);
        --size_;
    }
    T& front() { return (*this)[0]; }
    const T& front() const { return (*this)[0]; }
    T& back() { return (*this)[size() - 1]; }
    const T& back() const { return (*this)[size() - 1]; }
    T& operator[](std::size_t i) {  // i-th oldest.
        ASSERT(i < size());
        return slots_[place(i)];
    }
    const T& operator[](std::size_t i) const {
        ASSERT(i < size());
        return slots_[place(i)];
    }
    // The place of an element, which it keeps while it is here: below capacity().
    std::size_t index_of(const T& element) const {
        return static_cast<std::size_t>(&element - slots_.get());
    }
    void clear() { head_ = size_ = 0; }

private:
    std::uint32_t place(std::size_t i) const {  // Of the i-th oldest; i <= capacity.
        const std::uint32_t at = head_ + static_cast<std::uint32_t>(i);
        return at < capacity_ ? at : at - capacity_;
    }

    std::uint32_t size_ = 0;
    std::uint32_t head_ = 0;  // Place of the oldest.
    std::uint32_t capacity_;
    std::unique_ptr<T[]> slots_;
};

}  // namespace feroce
