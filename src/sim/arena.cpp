#include "sim/arena.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace feroce::sim {

namespace {

std::uint64_t round_up(std::uint64_t value) {
    return (value + 7) / 8 * 8;
}

}  // namespace

Arena::Arena(std::uint64_t size, std::uint64_t iova)
    : size_(round_up(size)), iova_(iova), words_(size_ / 8) {
    std::fill_n(data(), size_, kGuardByte);
}

Range Arena::allocate(std::uint64_t length) {
    const Range range{used_ + kGuardBytes, length};
    const std::uint64_t guard_end = round_up(range.end()) + kGuardBytes;
    ASSERT(guard_end <= size_);
    guards_.push_back({used_, kGuardBytes});
    guards_.push_back({range.end(), guard_end - range.end()});
    used_ = guard_end;
    std::fill_n(data() + range.offset, length, kFreshByte);
    return range;
}

ByteSpan Arena::bytes(Range range) {
    ASSERT(range.end() <= size_);
    return {data() + range.offset, range.length};
}

std::optional<std::uint64_t> Arena::broken_guard() {
    for (const Range& guard : guards_) {
        const ByteSpan span = bytes(guard);
        const auto bad =
            std::find_if(span.begin(), span.end(), [](std::byte b) { return b != kGuardByte; });
        if (bad != span.end()) return guard.offset + static_cast<std::uint64_t>(bad - span.begin());
    }
    return std::nullopt;
}

}  // namespace feroce::sim
