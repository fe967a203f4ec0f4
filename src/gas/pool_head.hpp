// The head of a pool of freed blocks, one word: which block is on top, and above that a number that
// every change counts up, so that a stale view of a head is never taken for the head of now. The
// block is told by its place in the heap and has as many bits as the heap needs; the number has the
// rest: 43 bits in a heap of 16 MiB, 27 in one of 1 TiB.
#pragma once

#include <bit>
#include <cstdint>

namespace feroce::gas::detail {

class PoolHead {
public:
    static constexpr std::uint64_t kGranule = 16;  // Where blocks begin.

    explicit constexpr PoolHead(std::uint64_t heap_bytes)
        : mask_((std::uint64_t{1} << std::bit_width(heap_bytes / kGranule + 1)) - 1) {}

    // What means a block in a head and in the block above it. 0: there is none.
    constexpr std::uint64_t link_to(std::uint64_t offset) const { return offset / kGranule + 1; }
    constexpr std::uint64_t link(std::uint64_t word) const { return word & mask_; }
    // Of the block on top, which there is.
    constexpr std::uint64_t offset(std::uint64_t head) const { return (link(head) - 1) * kGranule; }
    constexpr std::uint64_t next(std::uint64_t before, std::uint64_t link) const {
        return ((before & ~mask_) + (mask_ + 1)) | link;
    }

private:
    std::uint64_t mask_;
};

}  // namespace feroce::gas::detail
