// For programs that are built with MemorySanitizer or ThreadSanitizer: what this library, which is
// not, has written or ordered for them. The functions are the sanitizer's own; in a program without
// one their addresses are null. Valgrind needs none of this: it sees all instructions.
#pragma once

#include <cstddef>
#include <new>

#include "base/sanitizers.hpp"

// NOLINTBEGIN(readability-identifier-naming): the sanitizers' names.
extern "C" {
[[gnu::weak, gnu::visibility("default")]] void __msan_unpoison(const volatile void* at,
                                                               std::size_t size);
[[gnu::weak, gnu::visibility("default")]] void __msan_scoped_disable_interceptor_checks();
[[gnu::weak, gnu::visibility("default")]] void __msan_scoped_enable_interceptor_checks();
[[gnu::weak, gnu::visibility("default")]] void __tsan_acquire(void* about);
[[gnu::weak, gnu::visibility("default")]] void __tsan_release(void* about);
}
// NOLINTEND(readability-identifier-naming)

namespace feroce::annotate {

inline bool has_msan() noexcept {
    return &__msan_unpoison != nullptr && &__msan_scoped_enable_interceptor_checks != nullptr;
}
inline bool has_tsan() noexcept {
#if defined(FEROCE_TSAN)
    return false;  // It sees our atomics itself.
#else
    return &__tsan_acquire != nullptr && &__tsan_release != nullptr;
#endif
}

// The library has written these bytes, which the program may read.
inline void defined(const void* at, std::size_t size) noexcept {
    if (has_msan()) __msan_unpoison(at, size);
}
template <class T>
void defined(const T* object) noexcept {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): it may be a pointer that was written.
    if (object != nullptr) defined(object, sizeof(T));
}

// What a thread did before it called released() has happened before what another one does after
// acquired() of the same `about`.
inline void released(void* about) noexcept {
    if (has_tsan()) __tsan_release(about);
}
inline void acquired(void* about) noexcept {
    if (has_tsan()) __tsan_acquire(about);
}

// While one lives, calls of the C library are ours: MSan, which has not seen us write their
// arguments, does not judge them.
class OwnCalls {
public:
    OwnCalls() {
        if (has_msan()) __msan_scoped_disable_interceptor_checks();
    }
    ~OwnCalls() {
        if (has_msan()) __msan_scoped_enable_interceptor_checks();
    }
    OwnCalls(const OwnCalls&) = delete;
    OwnCalls& operator=(const OwnCalls&) = delete;
};

// Base of objects that programs read by a public struct at their front: their memory counts as
// written.
struct ReadByPrograms {
    static void* operator new(std::size_t size) {
        void* out = ::operator new(size);
        defined(out, size);
        return out;
    }
    static void operator delete(void* object) { ::operator delete(object); }
};

}  // namespace feroce::annotate
