#include "verbs/allocation_watch.hpp"

#include <execinfo.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/held_locks.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FEROCE_WATCH_BY_HOOK
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FEROCE_WATCH_BY_HOOK
#endif
#endif

namespace feroce::verbs::allocation_watch {
namespace {

constinit thread_local bool is_programs = false;
constinit thread_local bool is_watched = false;
constinit thread_local bool is_noting = false;  // A stack may cost memory itself.
constinit thread_local unsigned long count = 0;

struct Finding {
    using Stack = std::array<void*, 24>;
    std::atomic<bool> complete = false;
    Stack stack{};
    int depth = 0;
};
// Of different stacks, as many as anybody reads.
constinit std::array<Finding, 64> found{};
constinit std::atomic<std::size_t> found_count = 0;

bool is_known(const Finding::Stack& stack) {
    for (const Finding& finding : found)
        if (finding.complete.load(std::memory_order_acquire) && finding.stack == stack) return true;
    return false;
}

void note() {
    ++count;
    if (feroce::held_locks::count <= 0 || is_noting || (is_programs && !is_watched)) return;
    is_noting = true;
    Finding::Stack stack{};
    const int depth = ::backtrace(stack.data(), static_cast<int>(stack.size()));
    if (!is_known(stack)) {
        const std::size_t at = found_count.fetch_add(1, std::memory_order_relaxed);
        if (at < found.size()) {
            found[at].stack = stack;
            found[at].depth = depth;
            found[at].complete.store(true, std::memory_order_release);
        }
    }
    is_noting = false;
}

}  // namespace
}  // namespace feroce::verbs::allocation_watch

#if defined(FEROCE_WATCH_BY_HOOK)
// The sanitizer keeps its allocator, and calls this one.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*,
                                                                             std::size_t),
                                                         void (*free_hook)(const volatile void*));

namespace feroce::verbs::allocation_watch {
namespace {

void install() {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(
        [](const volatile void*, std::size_t) { note(); }, [](const volatile void*) {});
    if (installed == 0) std::abort();
}

}  // namespace
}  // namespace feroce::verbs::allocation_watch
#else
namespace feroce::verbs::allocation_watch {
namespace {

void install() {}

}  // namespace
}  // namespace feroce::verbs::allocation_watch

// Instead of the C library's; `operator new` ends here as well.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
    feroce::verbs::allocation_watch::note();
    return __libc_malloc(size);
}
void* calloc(std::size_t number, std::size_t size) {
    feroce::verbs::allocation_watch::note();
    return __libc_calloc(number, size);
}
void* realloc(void* old, std::size_t size) {
    feroce::verbs::allocation_watch::note();
    return __libc_realloc(old, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
    feroce::verbs::allocation_watch::note();
    return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
    feroce::verbs::allocation_watch::note();
    *out = __libc_memalign(alignment, size);
    return *out == nullptr ? ENOMEM : 0;
}
}
#endif

namespace feroce::verbs::allocation_watch {

void begin() {
    is_programs = true;
    install();
    void* one = nullptr;
    (void)::backtrace(&one, 1);  // The first one loads a library.
}

DataPath::DataPath() {
    is_watched = true;
}

DataPath::~DataPath() {
    is_watched = false;
}

unsigned long allocations() {
    return count;
}

std::string findings() {
    std::string out;
    for (Finding& finding : found) {
        if (!finding.complete.exchange(false, std::memory_order_acquire)) continue;
        const std::unique_ptr<char*, decltype(&std::free)> names(
            ::backtrace_symbols(finding.stack.data(), finding.depth), &std::free);
        out += "allocated while a lock is held:\n";
        for (int i = 0; i < finding.depth; ++i) out += std::string("  ") + names.get()[i] + "\n";
    }
    found_count.store(0, std::memory_order_relaxed);
    return out;
}

}  // namespace feroce::verbs::allocation_watch
