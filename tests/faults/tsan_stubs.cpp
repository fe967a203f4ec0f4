// What the library looks for in a program (base/annotate.hpp): with these it takes this one for one
// that is built with ThreadSanitizer.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the sanitizer's names.
[[gnu::visibility("default")]] void __tsan_acquire(void* about);
[[gnu::visibility("default")]] void __tsan_release(void* about);

void __tsan_acquire(void* /*about*/) {}
void __tsan_release(void* /*about*/) {}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
}
