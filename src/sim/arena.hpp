// Arena: the memory of one node, cut into regions with guard bytes around each. A byte has a fixed
// name (its iova, which is what goes into packets), wherever the host happened to put the arena, so
// packets are equal from run to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.hpp"

namespace feroce::sim {

// A piece of an arena by offset; stays meaningful when the bytes change.
struct Range {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;

    std::uint64_t end() const { return offset + length; }
};

class Arena {
public:
    static constexpr std::uint64_t kGuardBytes = 192;
    static constexpr std::byte kGuardByte{0xa5};
    static constexpr std::byte kFreshByte{0x00};

    Arena(std::uint64_t size, std::uint64_t iova);

    Range allocate(std::uint64_t length);  // 8-byte aligned, guards on both sides. Must fit.

    std::byte* data() { return words_data(); }
    ByteSpan bytes(Range range);
    ByteSpan all() { return bytes({0, size_}); }
    std::uint64_t size() const { return size_; }
    std::uint64_t iova(std::uint64_t offset) const { return iova_ + offset; }
    const std::vector<Range>& guards() const { return guards_; }
    std::optional<std::uint64_t> broken_guard();  // Offset of the first guard byte that changed.

private:
    std::byte* words_data() { return reinterpret_cast<std::byte*>(words_.data()); }

    std::uint64_t size_;
    std::uint64_t iova_;
    std::uint64_t used_ = 0;
    std::vector<std::uint64_t> words_;  // For the alignment that atomics need.
    std::vector<Range> guards_;
};

}  // namespace feroce::sim
