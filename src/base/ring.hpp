// Ring<T>: a first-in first-out queue whose capacity is fixed at creation; never allocates after.
// Owned by one thread or guarded by its owner's lock.
#pragma once

#include <cstddef>
#include <vector>

#include "base/assert.hpp"

namespace feroce {

template <class T>
class Ring {
public:
    explicit Ring(std::size_t capacity) : slots_(capacity) {}

    std::size_t capacity() const { return slots_.size(); }
    std::size_t size() const { return tail_ - head_; }
    bool empty() const { return head_ == tail_; }
    bool full() const { return size() == capacity(); }

    T& push() {  // The new last element, holding whatever its slot held before.
        ASSERT(!full());
        return slots_[tail_++ % slots_.size()];
    }
    void push(const T& value) { push() = value; }
    void pop() {
        ASSERT(!empty());
        ++head_;
    }
    T& front() { return (*this)[0]; }
    const T& front() const { return (*this)[0]; }
    T& back() { return (*this)[size() - 1]; }
    const T& back() const { return (*this)[size() - 1]; }
    T& operator[](std::size_t i) {  // i-th oldest.
        ASSERT(i < size());
        return slots_[(head_ + i) % slots_.size()];
    }
    const T& operator[](std::size_t i) const {
        ASSERT(i < size());
        return slots_[(head_ + i) % slots_.size()];
    }
    void clear() { head_ = tail_ = 0; }

private:
    std::vector<T> slots_;
    std::size_t head_ = 0;  // Both only grow; 64 bits do not wrap in a lifetime.
    std::size_t tail_ = 0;
};

}  // namespace feroce
