// For tests: a mapping of whole pages whose parts can be taken away.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "base/assert.hpp"

namespace feroce::mem::test {

// Where nobody maps anything unasked: once memory there is unmapped it stays so. Beside the other
// mappings a sanitizer was seen to take the place at once.
inline void* place_aside(std::size_t bytes) {
    constexpr std::uintptr_t kFar = std::uintptr_t{1} << 30;
    void* const usual = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT(usual != MAP_FAILED);
    munmap(usual, bytes);
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(usual) - kFar);
}

class Pages {
public:
    explicit Pages(std::size_t count, int file = -1)
        : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))), count_(count) {
        const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
        void* const got =
            mmap(place_aside(bytes()), bytes(), PROT_READ | PROT_WRITE, flags, file, 0);
        ASSERT(got != MAP_FAILED);
        base_ = static_cast<std::byte*>(got);
    }
    ~Pages() { munmap(base_, bytes()); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    std::size_t page() const { return page_; }
    std::size_t bytes() const { return page_ * count_; }
    std::byte* at(std::size_t index) const { return base_ + index * page_; }

    void protect(std::size_t index, std::size_t count, int protection) {
        ASSERT(mprotect(at(index), count * page_, protection) == 0);
    }
    // Gone for good unless map() brings it back.
    void unmap(std::size_t index, std::size_t count) {
        ASSERT(munmap(at(index), count * page_) == 0);
    }
    void map(std::size_t index, std::size_t count) {
        void* const got = mmap(at(index), count * page_, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        ASSERT(got == at(index));
    }

private:
    std::size_t page_;
    std::size_t count_;
    std::byte* base_ = nullptr;
};

}  // namespace feroce::mem::test
