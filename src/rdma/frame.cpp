#include "feroce/frame.hpp"

#include <array>
#include <new>

#include "base/sanitizers.hpp"

namespace feroce::rdma {
namespace {

#if defined(FEROCE_ASAN)
constexpr std::size_t kKept = 0;  // A frame that is used after its end is to be found.
#else
constexpr std::size_t kKept = 64;  // Of a size.
#endif
constexpr std::size_t kStep = 64;
constexpr std::size_t kSizes = 64;  // Frames of more than 4 KiB are not kept.

struct Free {
    Free* next;
};

struct FreeList {
    Free* first = nullptr;
    std::size_t length = 0;
};

struct Pool {
    std::array<FreeList, kSizes> lists;

    ~Pool();
};

thread_local Pool pool;
// Outlives the pool: tasks may end after the thread's other objects have.
thread_local bool closed = false;

Pool::~Pool() {
    closed = true;
    for (FreeList& list : lists)
        while (Free* frame = list.first) {
            list.first = frame->next;
            ::operator delete(frame);
        }
}

std::size_t size_of(std::size_t bytes) {
    return (bytes + kStep - 1) / kStep;
}

}  // namespace

void* PooledFrame::operator new(std::size_t bytes) {
    const std::size_t size = size_of(bytes);
    if (size >= kSizes || closed) return ::operator new(size* kStep);
    FreeList& list = pool.lists[size];
    if (list.first == nullptr) return ::operator new(size* kStep);
    Free* frame = list.first;
    list.first = frame->next;
    --list.length;
    return frame;
}

void PooledFrame::operator delete(void* frame, std::size_t bytes) noexcept {
    const std::size_t size = size_of(bytes);
    if (size >= kSizes || closed || pool.lists[size].length >= kKept) {
        ::operator delete(frame);
        return;
    }
    FreeList& list = pool.lists[size];
    list.first = new (frame) Free{list.first};
    ++list.length;
}

}  // namespace feroce::rdma
