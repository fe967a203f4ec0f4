// A dma-buf that the CPU can map (udmabuf, dma-heap, some drivers): recognised, and mapped for as
// long as a memory region uses it. The exporter is told that the CPU uses the memory from the
// first to the last moment of the mapping (DMA_BUF_IOCTL_SYNC): the soft device cannot know when a
// program's other devices take their turns.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "port/fd.hpp"

namespace feroce::port {

struct DmaBufferFacts {
    std::string exporter;  // As the kernel names it: "udmabuf", "system", "nv_dmabuf".
    std::uint64_t size = 0;

    // NVIDIA's driver exports memory that only CUDA reaches.
    bool is_cuda() const { return exporter == "nv_dmabuf"; }
    bool holds(std::uint64_t offset, std::uint64_t length) const {
        return length > 0 && offset <= size && length <= size - offset;
    }
};

inline constexpr Error kOutsideDmaBuffer{EINVAL, "the range is empty or leaves the dma-buf"};

// EBADF: no such descriptor, which is how programs ask whether dma-bufs are supported at all.
// EINVAL: something else than a dma-buf.
Result<DmaBufferFacts> examine_dma_buffer(int fd);

class DmaBuffer {
public:
    // EINVAL: the range leaves the buffer. EOPNOTSUPP: its exporter does not let the CPU map it.
    static Result<std::unique_ptr<DmaBuffer>> map(int fd, std::uint64_t offset,
                                                  std::uint64_t length, bool writable);
    ~DmaBuffer();
    DmaBuffer(const DmaBuffer&) = delete;
    DmaBuffer& operator=(const DmaBuffer&) = delete;

    std::byte* first() const { return first_; }  // The byte at the offset that was asked for.

private:
    DmaBuffer(Fd fd, void* mapping, std::size_t mapped, std::size_t inside, bool writable);

    Fd fd_;  // Our own: the program may close its descriptor.
    void* mapping_;
    std::size_t mapped_;
    std::byte* first_;
    bool writable_;
};

// For tests: a folder that stands for /proc/self. Null is the real one.
void stand_in_for_proc(const char* folder);

}  // namespace feroce::port
