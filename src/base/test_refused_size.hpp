// Allocations of one size fail while a test asks for it. Replaces the operators of the program:
// included by one source of a test.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> refused_size = 0;

}  // namespace

// In place of the library's. Not inline: the compiler would see one half of a pair.
[[gnu::noinline]] void* operator new(std::size_t size) {
    if (size == refused_size.load(std::memory_order_relaxed)) throw std::bad_alloc();
    if (void* const memory = std::malloc(size)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return size == refused_size.load(std::memory_order_relaxed) ? nullptr : std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
