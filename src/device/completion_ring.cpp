#include "device/completion_ring.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace feroce::device {
namespace {

constexpr std::uint32_t kFirstWidth = 64;
// From here on straight from the kernel, which backs a page when it is first written: the allocator
// may hand out, and clear, what was used before.
constexpr std::size_t kMapped = 64 * 1024;

std::size_t bytes_for(std::uint32_t capacity) {
    return std::size_t{capacity} * sizeof(transport::Completion);
}

void* take(std::size_t bytes) {
    if (bytes < kMapped) return ::operator new(bytes);
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return memory;
}

}  // namespace

CompletionRing::CompletionRing(std::uint32_t capacity)
    : slots_(static_cast<transport::Completion*>(take(bytes_for(capacity)))),
      capacity_(capacity),
      width_(std::min(capacity, kFirstWidth)) {}

CompletionRing::~CompletionRing() {
    if (slots_ == nullptr) return;
    if (bytes_for(capacity_) < kMapped)
        ::operator delete(slots_);
    else
        ::munmap(slots_, bytes_for(capacity_));
}

// Rare, and over once the queue has its working size.
void CompletionRing::widen() {
    std::rotate(slots_, slots_ + head_, slots_ + width_);
    head_ = 0;
    width_ = std::min(capacity_, 2 * width_);
}

}  // namespace feroce::device
