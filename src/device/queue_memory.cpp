#include "device/queue_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace feroce::device {

namespace {

// Of amd64, and of arm64 with pages of 4 KiB. Elsewhere the request below is just refused.
constexpr std::size_t kLargePage = 2 * 1024 * 1024;

std::align_val_t chunk_alignment(std::size_t bytes, std::size_t alignment) {
    return std::align_val_t{bytes < kLargePage ? alignment : std::max(alignment, kLargePage)};
}

}  // namespace

void* QueueMemory::Chunks::do_allocate(std::size_t bytes, std::size_t alignment) {
    void* const chunk = ::operator new(bytes, chunk_alignment(bytes, alignment));
    // A wish: where it is not granted, ordinary pages do.
    if (bytes >= kLargePage) (void)::madvise(chunk, bytes, MADV_HUGEPAGE);
    return chunk;
}

void QueueMemory::Chunks::do_deallocate(void* chunk, std::size_t bytes, std::size_t alignment) {
    ::operator delete(chunk, chunk_alignment(bytes, alignment));
}

}  // namespace feroce::device
