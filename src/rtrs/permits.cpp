// See permits.hpp.
#include "rtrs/permits.hpp"

#include <bit>

#include "base/assert.hpp"

namespace feroce::rtrs {

namespace {
constexpr std::size_t kWordBits = 64;
}

Permits::Permits(std::uint16_t count)
    : free_((count + kWordBits - 1) / kWordBits, ~std::uint64_t{0}), count_(count) {
    if (count % kWordBits != 0) free_.back() = (std::uint64_t{1} << count % kWordBits) - 1;
}

bool Permits::take(Waiter& waiter) {
    if (taken_ == count_) {
        waiting_.push_back(waiter);
        return false;
    }
    std::size_t word = 0;
    while (free_[word] == 0) ++word;
    const int bit = std::countr_zero(free_[word]);
    free_[word] &= free_[word] - 1;
    waiter.permit = static_cast<std::uint16_t>(word * kWordBits + static_cast<std::size_t>(bit));
    ++taken_;
    return true;
}

Permits::Waiter* Permits::give(std::uint16_t permit) {
    const std::uint64_t bit = std::uint64_t{1} << permit % kWordBits;
    ASSERT(permit < count_ && (free_[permit / kWordBits] & bit) == 0);
    if (Waiter* const next = waiting_.pop_front()) {
        next->permit = permit;
        return next;
    }
    free_[permit / kWordBits] |= bit;
    --taken_;
    return nullptr;
}

}  // namespace feroce::rtrs
