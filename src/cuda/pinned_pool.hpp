// PinnedPool: host memory that the driver copies without a detour, in pieces of two sizes. All of
// it is made and pinned when the pool is: pinning may wait for a kernel of the program.
//
// The memory is ours and only lent to the driver, so pieces stay readable when a program destroys
// its context under us. Pieces hold a reference to the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.hpp"
#include "base/ring.hpp"
#include "cuda/driver.hpp"
#include "mem/far_memory.hpp"

namespace feroce::cuda {

class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
public:
    struct Size {
        std::uint32_t small_pieces = 1024;  // Of kSmallBytes: short messages.
        std::uint32_t pieces = 96;          // Of kPieceBytes: 24 MiB.
    };
    static constexpr std::uint32_t kSmallBytes = 4096;

    // In the current context.
    static Result<std::shared_ptr<PinnedPool>> make(const Driver& driver, const Size& size);
    ~PinnedPool();
    PinnedPool(const PinnedPool&) = delete;
    PinnedPool& operator=(const PinnedPool&) = delete;

    // Null if none is left. Any thread, also under locks: nothing is allocated.
    std::byte* take(std::uint32_t size);
    void give(std::byte* piece);
    // As a Staging. From the heap if no piece is left.
    std::unique_ptr<mem::Staging> stage(std::uint32_t size);
    bool holds(ByteView bytes) const;

private:
    PinnedPool(const Driver& driver, const Size& size, std::byte* start, std::size_t bytes);

    const Driver& driver_;
    std::byte* const start_;
    const std::size_t bytes_;
    std::byte* const first_large_;
    std::mutex mutex_;  // Guards the next two, for a few instructions.
    std::vector<std::byte*> small_;
    // In turns: the caches hold what was read from the last one, and the GPU would have to take it
    // from there before it writes the next bytes.
    Ring<std::byte*> large_;
};

}  // namespace feroce::cuda
