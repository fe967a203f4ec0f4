// Which sanitizer the compiler puts in: g++ and clang tell it differently.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define FEROCE_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define FEROCE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FEROCE_ASAN 1
#elif __has_feature(thread_sanitizer)
#define FEROCE_TSAN 1
#endif
#endif
