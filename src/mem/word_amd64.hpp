// See word.hpp. amd64: aligned accesses of up to 8 bytes are single accesses (Intel SDM 3A 9.1.1,
// AMD APM 2 7.3.2), and so are aligned movdqa of 16 bytes where the processor has AVX (same
// sections); elsewhere blocks move by 8. Stores stay in order and each is a release, and a locked
// instruction is a full fence.
#pragma once

namespace feroce::mem::word {

// False until static initialisation, which is slower but as right.
inline const bool kSixteenBytesAreOne = __builtin_cpu_supports("avx");

// One access of 1, 2, 4 or 8 bytes.
template <std::size_t Size>
inline bool load(const std::byte* registered, std::byte* into) {
    if constexpr (Size == 1) {
        asm goto("1: mov (%[from]), %%al\n2: mov %%al, (%[into])\n\t" FEROCE_FIX_UP
                 :
                 : [from] "r"(registered), [into] "r"(into)
                 : "memory", "rax"
                 : fault);
    } else if constexpr (Size == 2) {
        asm goto("1: mov (%[from]), %%ax\n2: mov %%ax, (%[into])\n\t" FEROCE_FIX_UP
                 :
                 : [from] "r"(registered), [into] "r"(into)
                 : "memory", "rax"
                 : fault);
    } else if constexpr (Size == 4) {
        asm goto("1: mov (%[from]), %%eax\n2: mov %%eax, (%[into])\n\t" FEROCE_FIX_UP
                 :
                 : [from] "r"(registered), [into] "r"(into)
                 : "memory", "rax"
                 : fault);
    } else {
        asm goto("1: mov (%[from]), %%rax\n2: mov %%rax, (%[into])\n\t" FEROCE_FIX_UP
                 :
                 : [from] "r"(registered), [into] "r"(into)
                 : "memory", "rax"
                 : fault);
    }
    return true;
fault:
    return false;
}

template <class T>
inline bool store(std::byte* registered, T value) {
    asm goto("1: mov %[value], (%[to])\n2:\n\t" FEROCE_FIX_UP
             :
             : [to] "r"(registered), [value] "r"(value)
             : "memory"
             : fault);
    return true;
fault:
    return false;
}

template <class T>
inline bool store_release(std::byte* registered, T value) {
    return store(registered, value);
}

inline bool read_by_8(const std::byte* registered, std::byte* into) {
    asm goto(
        "1: mov (%[from]), %%rax\n\t"
        "mov 8(%[from]), %%rcx\n\t"
        "mov 16(%[from]), %%rdx\n\t"
        "mov 24(%[from]), %%r8\n\t"
        "mov 32(%[from]), %%r9\n\t"
        "mov 40(%[from]), %%r10\n\t"
        "mov 48(%[from]), %%r11\n\t"
        "mov 56(%[from]), %%rsi\n"
        "2: mov %%rax, (%[into])\n\t"
        "mov %%rcx, 8(%[into])\n\t"
        "mov %%rdx, 16(%[into])\n\t"
        "mov %%r8, 24(%[into])\n\t"
        "mov %%r9, 32(%[into])\n\t"
        "mov %%r10, 40(%[into])\n\t"
        "mov %%r11, 48(%[into])\n\t"
        "mov %%rsi, 56(%[into])\n\t" FEROCE_FIX_UP
        :
        : [from] "r"(registered), [into] "r"(into)
        : "memory", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11"
        : fault);
    return true;
fault:
    return false;
}

inline bool read_by_16(const std::byte* registered, std::byte* into) {
    asm goto(
        "1: movdqa (%[from]), %%xmm0\n\t"
        "movdqa 16(%[from]), %%xmm1\n\t"
        "movdqa 32(%[from]), %%xmm2\n\t"
        "movdqa 48(%[from]), %%xmm3\n"
        "2: movdqu %%xmm0, (%[into])\n\t"
        "movdqu %%xmm1, 16(%[into])\n\t"
        "movdqu %%xmm2, 32(%[into])\n\t"
        "movdqu %%xmm3, 48(%[into])\n\t" FEROCE_FIX_UP
        :
        : [from] "r"(registered), [into] "r"(into)
        : "memory", "xmm0", "xmm1", "xmm2", "xmm3"
        : fault);
    return true;
fault:
    return false;
}

inline bool write_by_8(std::byte* registered, const std::byte* from) {
    asm goto(
        "mov (%[from]), %%rax\n\t"
        "mov 8(%[from]), %%rcx\n\t"
        "mov 16(%[from]), %%rdx\n\t"
        "mov 24(%[from]), %%r8\n\t"
        "mov 32(%[from]), %%r9\n\t"
        "mov 40(%[from]), %%r10\n\t"
        "mov 48(%[from]), %%r11\n\t"
        "mov 56(%[from]), %%rsi\n"
        "1: mov %%rax, (%[to])\n\t"
        "mov %%rcx, 8(%[to])\n\t"
        "mov %%rdx, 16(%[to])\n\t"
        "mov %%r8, 24(%[to])\n\t"
        "mov %%r9, 32(%[to])\n\t"
        "mov %%r10, 40(%[to])\n\t"
        "mov %%r11, 48(%[to])\n\t"
        "mov %%rsi, 56(%[to])\n"
        "2:\n\t" FEROCE_FIX_UP
        :
        : [to] "r"(registered), [from] "r"(from)
        : "memory", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11"
        : fault);
    return true;
fault:
    return false;
}

inline bool write_by_16(std::byte* registered, const std::byte* from) {
    asm goto(
        "movdqu (%[from]), %%xmm0\n\t"
        "movdqu 16(%[from]), %%xmm1\n\t"
        "movdqu 32(%[from]), %%xmm2\n\t"
        "movdqu 48(%[from]), %%xmm3\n"
        "1: movdqa %%xmm0, (%[to])\n\t"
        "movdqa %%xmm1, 16(%[to])\n\t"
        "movdqa %%xmm2, 32(%[to])\n\t"
        "movdqa %%xmm3, 48(%[to])\n"
        "2:\n\t" FEROCE_FIX_UP
        :
        : [to] "r"(registered), [from] "r"(from)
        : "memory", "xmm0", "xmm1", "xmm2", "xmm3"
        : fault);
    return true;
fault:
    return false;
}

inline bool read_blocks(const std::byte* registered, std::byte* into, std::size_t size) {
    return kSixteenBytesAreOne ? move_blocks<read_by_16>(registered, into, size)
                               : move_blocks<read_by_8>(registered, into, size);
}

inline bool write_blocks(std::byte* registered, const std::byte* from, std::size_t size) {
    return kSixteenBytesAreOne ? move_blocks<write_by_16>(registered, from, size)
                               : move_blocks<write_by_8>(registered, from, size);
}

// The block ends the delivery; here every store is a release anyway.
inline bool write_last_block(std::byte* registered, const std::byte* from) {
    return write_blocks(registered, from, kBlock);
}

inline bool compare_swap(std::byte* registered, std::uint64_t compare, std::uint64_t swap,
                         std::uint64_t* before) {
    asm goto(
        "mov %[compare], %%rax\n"
        "1: lock cmpxchgq %[swap], (%[at])\n"
        "2: mov %%rax, (%[before])\n\t" FEROCE_FIX_UP
        :
        : [at] "r"(registered), [compare] "r"(compare), [swap] "r"(swap), [before] "r"(before)
        : "memory", "cc", "rax"
        : fault);
    return true;
fault:
    return false;
}

inline bool fetch_add(std::byte* registered, std::uint64_t add, std::uint64_t* before) {
    asm goto(
        "mov %[add], %%rax\n"
        "1: lock xaddq %%rax, (%[at])\n"
        "2: mov %%rax, (%[before])\n\t" FEROCE_FIX_UP
        :
        : [at] "r"(registered), [add] "r"(add), [before] "r"(before)
        : "memory", "cc", "rax"
        : fault);
    return true;
fault:
    return false;
}

}  // namespace feroce::mem::word
