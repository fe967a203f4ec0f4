#include "device/queue_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

namespace feroce::device {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPooledMax = std::size_t{1} << 20;  // Larger blocks come by themselves.
constexpr std::size_t kFirstChunk = 16 * 1024;
// Of amd64, and of arm64 with pages of 4 KiB. Elsewhere the request below is just refused.
constexpr std::size_t kLargePage = 2 * 1024 * 1024;

bool is_pooled(std::size_t bytes, std::size_t alignment) {
    return bytes <= kPooledMax && alignment <= kAlignment;
}

std::align_val_t chunk_alignment(std::size_t bytes, std::size_t alignment) {
    return std::align_val_t{std::max(alignment, bytes < kLargePage ? kAlignment : kLargePage)};
}

void* take_chunk(std::size_t bytes, std::size_t alignment) {
    void* const chunk = ::operator new(bytes, chunk_alignment(bytes, alignment));
    // A wish: where it is not granted, ordinary pages do.
    if (bytes >= kLargePage) (void)::madvise(chunk, bytes, MADV_HUGEPAGE);
    return chunk;
}

void give_chunk(void* chunk, std::size_t bytes, std::size_t alignment) {
    ::operator delete(chunk, chunk_alignment(bytes, alignment));
}

}  // namespace

QueueMemory::~QueueMemory() {
    for (const Chunk& chunk : chunks_) give_chunk(chunk.start, chunk.bytes, kAlignment);
}

QueueMemory::Size QueueMemory::size_for(std::size_t bytes) {
    if (bytes <= kAlignment) return {0, kAlignment};
    // `bytes` is more than `floor` and at most twice that.
    const auto octave = static_cast<std::size_t>(std::bit_width((bytes - 1) / kAlignment));
    const std::size_t floor = kAlignment << (octave - 1);
    const std::size_t step = std::max(kAlignment, floor / 4);
    const std::size_t quarter = (bytes - 1 - floor) / step;
    return {4 * octave + quarter, floor + (quarter + 1) * step};
}

void QueueMemory::add_chunk(Pool& pool, std::size_t block_bytes) {
    const std::size_t wanted = std::max(block_bytes, std::max(kFirstChunk, 2 * pool.chunk_bytes));
    const std::size_t bytes = std::min(wanted, kLargePage);
    if (chunks_.size() == chunks_.capacity())
        chunks_.reserve(std::max<std::size_t>(8, 2 * chunks_.capacity()));
    pool.fresh = static_cast<std::byte*>(take_chunk(bytes, kAlignment));
    chunks_.push_back({pool.fresh, bytes});
    pool.fresh_blocks = bytes / block_bytes;
    pool.chunk_bytes = bytes;
}

void* QueueMemory::do_allocate(std::size_t bytes, std::size_t alignment) {
    if (!is_pooled(bytes, alignment)) return take_chunk(bytes, alignment);
    const Size size = size_for(bytes);
    Pool& pool = pools_[size.index];
    if (pool.freed != nullptr) {
        Free* const block = pool.freed;
        pool.freed = block->next;
        return block;
    }
    if (pool.fresh_blocks == 0) add_chunk(pool, size.bytes);
    std::byte* const block = pool.fresh;
    pool.fresh += size.bytes;
    --pool.fresh_blocks;
    return block;
}

void QueueMemory::do_deallocate(void* block, std::size_t bytes, std::size_t alignment) {
    if (!is_pooled(bytes, alignment)) return give_chunk(block, bytes, alignment);
    Pool& pool = pools_[size_for(bytes).index];
    pool.freed = new (block) Free{pool.freed};
}

}  // namespace feroce::device
