// PooledFrame: promises derive from it, so that the frames of their coroutines come from a pool of
// the thread. An operation made of several tasks then allocates nothing once the thread is warm.
// A frame may end on another thread than the one it began on; it stays in that one's pool.
#pragma once

#include <cstddef>

namespace feroce::rdma {

struct PooledFrame {
    static void* operator new(std::size_t bytes);
    static void operator delete(void* frame, std::size_t bytes) noexcept;
};

}  // namespace feroce::rdma
