// See word.hpp. arm64: aligned accesses of up to 8 bytes are single-copy atomic, and ldp/stp of X
// registers are two such accesses (Arm ARM B2.2.1). Nothing is ordered by itself: the last store of
// a delivery is an stlr, and atomics stand between two full barriers. No LSE, which armv8.0 lacks.
#pragma once

namespace feroce::mem::word {

// One access of 1, 2, 4 or 8 bytes.
template <std::size_t Size>
inline bool load(const std::byte* registered, std::byte* into) {
    if constexpr (Size == 1) {
        asm goto("1: ldrb w8, [%[from]]\n2: strb w8, [%[into]]\n\t" FEROCE_FIX_UP
                 :
                 : [from] "r"(registered), [into] "r"(into)
                 : "memory", "x8"
                 : fault);
    } else if constexpr (Size == 2) {
        asm goto("1: ldrh w8, [%[from]]\n2: strh w8, [%[into]]\n\t" FEROCE_FIX_UP
                 :
                 : [from] "r"(registered), [into] "r"(into)
                 : "memory", "x8"
                 : fault);
    } else if constexpr (Size == 4) {
        asm goto("1: ldr w8, [%[from]]\n2: str w8, [%[into]]\n\t" FEROCE_FIX_UP
                 :
                 : [from] "r"(registered), [into] "r"(into)
                 : "memory", "x8"
                 : fault);
    } else {
        asm goto("1: ldr x8, [%[from]]\n2: str x8, [%[into]]\n\t" FEROCE_FIX_UP
                 :
                 : [from] "r"(registered), [into] "r"(into)
                 : "memory", "x8"
                 : fault);
    }
    return true;
fault:
    return false;
}

template <class T>
inline bool store(std::byte* registered, T narrow) {
    const std::uint64_t value = narrow;
    if constexpr (sizeof(T) == 1) {
        asm goto("1: strb %w[v], [%[p]]\n2:\n\t" FEROCE_FIX_UP
                 :
                 : [v] "r"(value), [p] "r"(registered)
                 : "memory"
                 : fault);
    } else if constexpr (sizeof(T) == 2) {
        asm goto("1: strh %w[v], [%[p]]\n2:\n\t" FEROCE_FIX_UP
                 :
                 : [v] "r"(value), [p] "r"(registered)
                 : "memory"
                 : fault);
    } else if constexpr (sizeof(T) == 4) {
        asm goto("1: str %w[v], [%[p]]\n2:\n\t" FEROCE_FIX_UP
                 :
                 : [v] "r"(value), [p] "r"(registered)
                 : "memory"
                 : fault);
    } else {
        asm goto("1: str %[v], [%[p]]\n2:\n\t" FEROCE_FIX_UP
                 :
                 : [v] "r"(value), [p] "r"(registered)
                 : "memory"
                 : fault);
    }
    return true;
fault:
    return false;
}

template <class T>
inline bool store_release(std::byte* registered, T narrow) {
    const std::uint64_t value = narrow;
    if constexpr (sizeof(T) == 1) {
        asm goto("1: stlrb %w[v], [%[p]]\n2:\n\t" FEROCE_FIX_UP
                 :
                 : [v] "r"(value), [p] "r"(registered)
                 : "memory"
                 : fault);
    } else if constexpr (sizeof(T) == 2) {
        asm goto("1: stlrh %w[v], [%[p]]\n2:\n\t" FEROCE_FIX_UP
                 :
                 : [v] "r"(value), [p] "r"(registered)
                 : "memory"
                 : fault);
    } else if constexpr (sizeof(T) == 4) {
        asm goto("1: stlr %w[v], [%[p]]\n2:\n\t" FEROCE_FIX_UP
                 :
                 : [v] "r"(value), [p] "r"(registered)
                 : "memory"
                 : fault);
    } else {
        asm goto("1: stlr %[v], [%[p]]\n2:\n\t" FEROCE_FIX_UP
                 :
                 : [v] "r"(value), [p] "r"(registered)
                 : "memory"
                 : fault);
    }
    return true;
fault:
    return false;
}

inline bool read_block(const std::byte* registered, std::byte* into) {
    asm goto(
        "1: ldp x8, x9, [%[from]]\n\t"
        "ldp x10, x11, [%[from], #16]\n\t"
        "ldp x12, x13, [%[from], #32]\n\t"
        "ldp x14, x15, [%[from], #48]\n"
        "2: stp x8, x9, [%[into]]\n\t"
        "stp x10, x11, [%[into], #16]\n\t"
        "stp x12, x13, [%[into], #32]\n\t"
        "stp x14, x15, [%[into], #48]\n\t" FEROCE_FIX_UP
        :
        : [from] "r"(registered), [into] "r"(into)
        : "memory", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15"
        : fault);
    return true;
fault:
    return false;
}

inline bool read_blocks(const std::byte* registered, std::byte* into, std::size_t size) {
    return move_blocks<read_block>(registered, into, size);
}

inline bool write_block(std::byte* registered, const std::byte* from) {
    asm goto(
        "ldp x8, x9, [%[from]]\n\t"
        "ldp x10, x11, [%[from], #16]\n\t"
        "ldp x12, x13, [%[from], #32]\n\t"
        "ldp x14, x15, [%[from], #48]\n"
        "1: stp x8, x9, [%[to]]\n\t"
        "stp x10, x11, [%[to], #16]\n\t"
        "stp x12, x13, [%[to], #32]\n\t"
        "stp x14, x15, [%[to], #48]\n"
        "2:\n\t" FEROCE_FIX_UP
        :
        : [from] "r"(from), [to] "r"(registered)
        : "memory", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15"
        : fault);
    return true;
fault:
    return false;
}

inline bool write_blocks(std::byte* registered, const std::byte* from, std::size_t size) {
    return move_blocks<write_block>(registered, from, size);
}

// The block ends the delivery, so its last word is the release.
inline bool write_last_block(std::byte* registered, const std::byte* from) {
    std::byte* const last = registered + 56;
    asm goto(
        "ldp x8, x9, [%[from]]\n\t"
        "ldp x10, x11, [%[from], #16]\n\t"
        "ldp x12, x13, [%[from], #32]\n\t"
        "ldp x14, x15, [%[from], #48]\n"
        "1: stp x8, x9, [%[to]]\n\t"
        "stp x10, x11, [%[to], #16]\n\t"
        "stp x12, x13, [%[to], #32]\n\t"
        "str x14, [%[to], #48]\n\t"
        "stlr x15, [%[last]]\n"
        "2:\n\t" FEROCE_FIX_UP
        :
        : [from] "r"(from), [to] "r"(registered), [last] "r"(last)
        : "memory", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15"
        : fault);
    return true;
fault:
    return false;
}

// Stores in any case, as amd64 does: a swap on memory that cannot be written fails whether or not
// the comparison would have.
inline bool compare_swap(std::byte* registered, std::uint64_t compare, std::uint64_t swap,
                         std::uint64_t* before) {
    asm goto(
        "dmb ish\n"
        "1: ldxr x8, [%[at]]\n\t"
        "cmp x8, %[compare]\n\t"
        "csel x10, %[swap], x8, eq\n\t"
        "stxr w9, x10, [%[at]]\n\t"
        "cbnz w9, 1b\n"
        "2: dmb ish\n\t"
        "str x8, [%[before]]\n\t" FEROCE_FIX_UP
        :
        : [at] "r"(registered), [compare] "r"(compare), [swap] "r"(swap), [before] "r"(before)
        : "memory", "cc", "x8", "x9", "x10"
        : fault);
    return true;
fault:
    return false;
}

inline bool fetch_add(std::byte* registered, std::uint64_t add, std::uint64_t* before) {
    asm goto(
        "dmb ish\n"
        "1: ldxr x8, [%[at]]\n\t"
        "add x10, x8, %[add]\n\t"
        "stxr w9, x10, [%[at]]\n\t"
        "cbnz w9, 1b\n"
        "2: dmb ish\n\t"
        "str x8, [%[before]]\n\t" FEROCE_FIX_UP
        :
        : [at] "r"(registered), [add] "r"(add), [before] "r"(before)
        : "memory", "cc", "x8", "x9", "x10"
        : fault);
    return true;
fault:
    return false;
}

}  // namespace feroce::mem::word
