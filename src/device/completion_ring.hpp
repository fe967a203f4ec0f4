// CompletionRing: first in, first out, for a completion queue. The memory for all that it may ever
// hold is taken at its creation, so that a completion never finds none; but programs ask for
// millions and use few, so it is used, and backed by the kernel, only as far as it was ever filled
// at once. Guarded by its owner's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/assert.hpp"
#include "transport/work.hpp"

namespace feroce::device {

class CompletionRing {
public:
    CompletionRing() = default;                       // Has room for none, and no memory.
    explicit CompletionRing(std::uint32_t capacity);  // May throw.
    ~CompletionRing();
    CompletionRing(CompletionRing&& other) noexcept { swap(other); }
    CompletionRing& operator=(CompletionRing&& other) noexcept {
        swap(other);
        return *this;
    }

    std::uint32_t capacity() const { return capacity_; }
    std::uint32_t size() const { return size_; }
    bool empty() const { return size_ == 0; }

    void push(const transport::Completion& completion) {
        ASSERT(size_ < capacity_);
        if (size_ == width_) [[unlikely]]
            widen();
        std::construct_at(slots_ + place(size_++), completion);
    }
    const transport::Completion& front() const {
        ASSERT(!empty());
        return slots_[head_];
    }
    void pop() {
        ASSERT(!empty());
        head_ = place(1);
        --size_;
    }

private:
    static_assert(std::is_trivially_copyable_v<transport::Completion> &&
                  std::is_trivially_destructible_v<transport::Completion>);

    std::uint32_t place(std::uint32_t i) const {  // Of the i-th oldest.
        const std::uint32_t at = head_ + i;
        return at < width_ ? at : at - width_;
    }
    void widen();
    void swap(CompletionRing& other) {
        std::swap(slots_, other.slots_);
        std::swap(capacity_, other.capacity_);
        std::swap(width_, other.width_);
        std::swap(head_, other.head_);
        std::swap(size_, other.size_);
    }

    transport::Completion* slots_ = nullptr;
    std::uint32_t capacity_ = 0;  // Slots there is memory for.
    std::uint32_t width_ = 0;     // Slots in use, after which the ring begins again.
    std::uint32_t head_ = 0;      // Place of the oldest.
    std::uint32_t size_ = 0;
};

}  // namespace feroce::device
