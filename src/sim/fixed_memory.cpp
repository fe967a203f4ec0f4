#include "sim/fixed_memory.hpp"

#include <sys/mman.h>

#include "base/assert.hpp"

namespace feroce::sim {
namespace {

// Where neither programs, libraries and heaps nor the shadows of ASan and TSan are: below the place
// where Linux puts programs.
#if defined(__aarch64__)
constexpr std::uintptr_t kBase = 0xaaaa'1000'0000;
#else
constexpr std::uintptr_t kBase = 0x5510'0000'0000;
#endif
constexpr std::size_t kStride = 64 * 1024 * 1024;
constexpr std::uint32_t kMachinesMax = 32;

}  // namespace

FixedMemory::Mapping::Mapping(std::uint32_t index, std::size_t size)
    : start(reinterpret_cast<void*>(kBase + index * kStride)), bytes(size) {
    ASSERT(index < kMachinesMax && bytes <= kStride);
    const void* got =
        ::mmap(start, bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    ASSERT(got == start);  // Else another world lives, or this machine has an unusual layout.
}

FixedMemory::Mapping::~Mapping() {
    ::munmap(start, bytes);
}

FixedMemory::FixedMemory(std::uint32_t index, std::size_t bytes)
    : mapping_(index, bytes),
      all_(mapping_.start, bytes, std::pmr::null_memory_resource()),
      pool_(&all_) {}

}  // namespace feroce::sim
