// The allocator of the tests that run out of memory.
#include "starved.hpp"

#include <atomic>
#include <cstddef>

namespace {

constinit thread_local long until_failure = -1;  // Negative: none fails.
constinit thread_local bool has_failed = false;
constinit thread_local long blocks = 0;
constinit thread_local bool is_programs = false;

// Of the threads that are not the program's; relaxed: the test waits for what they do.
constinit std::atomic<long> others_until{-1};
constinit std::atomic<bool> others_all{false};
constinit std::atomic<bool> others_failed{false};

bool fails_for_others() {
    bool fails = others_all.load(std::memory_order_relaxed);
    long left = others_until.load(std::memory_order_relaxed);
    while (!fails && left >= 0)
        if (others_until.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
            fails = left == 0;
            break;
        }
    if (fails) others_failed.store(true, std::memory_order_relaxed);
    return fails;
}

bool fails_now() {
    bool fails = false;
    if (!is_programs)
        fails = fails_for_others();
    else if (until_failure >= 0)
        fails = until_failure-- == 0;
    if (fails && is_programs) has_failed = true;
    if (fails) errno = ENOMEM;
    return fails;
}

void* counted(void* block) {
    if (block != nullptr) ++blocks;
    return block;
}

}  // namespace

// Instead of the C library's, for the libraries of this program as well.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* block);

void* malloc(std::size_t size) {
    return fails_now() ? nullptr : counted(__libc_malloc(size));
}
void* calloc(std::size_t count, std::size_t size) {
    return fails_now() ? nullptr : counted(__libc_calloc(count, size));
}
void* realloc(void* old, std::size_t size) {
    if (fails_now()) return nullptr;
    void* block = __libc_realloc(old, size);
    return old == nullptr ? counted(block) : block;
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
    return fails_now() ? nullptr : counted(__libc_memalign(alignment, size));
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
    if (fails_now()) return ENOMEM;
    *out = counted(__libc_memalign(alignment, size));
    return *out == nullptr ? ENOMEM : 0;
}
void free(void* block) {
    if (block != nullptr) --blocks;
    __libc_free(block);
}
}

namespace feroce::starved {

void fail_allocation(long after) {
    is_programs = true;
    has_failed = false;
    until_failure = after;
}

bool end_failing() {
    until_failure = -1;
    return has_failed;
}

long blocks_alive() {
    return blocks;
}

void fail_allocation_of_others(long after) {
    is_programs = true;
    others_failed = false;
    others_until = after;
}

void fail_all_of_others() {
    is_programs = true;
    others_failed = false;
    others_all = true;
}

bool others_have_failed() {
    return others_failed;
}

void feed_others() {
    others_all = false;
    others_until = -1;
}

}  // namespace feroce::starved
