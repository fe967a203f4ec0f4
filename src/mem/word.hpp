// The machine instructions that touch registered memory, each with an entry in the fix-up table: a
// fault between labels 1 and 2 resumes at the C label `fault`. touch.cpp alone includes this,
// and its test under another name.
//
// Written as assembly because the contract of touch.hpp is about instructions: a compiler may
// split, repeat or fuse C++ accesses, and it does not know that they may fault. Sanitizers do not
// see into assembly either, which is wanted: the application's races on its own memory are not
// ours.
#pragma once

#include <cstddef>
#include <cstdint>

// Three distances, so that the table needs no relocation; guard.cpp reads it as FixUp. A macro,
// because asm takes only string literals.
#define FEROCE_FIX_UP                        \
    ".pushsection feroce_fix_ups, \"a\"\n\t" \
    ".balign 4\n\t"                          \
    ".long 1b - .\n\t"                       \
    ".long 2b - .\n\t"                       \
    ".long %l[fault] - .\n\t"                \
    ".popsection\n\t"

namespace feroce::mem::word {

inline constexpr std::size_t kBlock = 64;  // Bytes that read_block and write_block move.

// All return false on a fault. "Registered" pointers are aligned to the access; private ones may
// lie anywhere.

// Blocks in a row, ascending; `size` is a multiple of kBlock. Nothing but the moves and what counts
// them is in the loop: it is what most instructions of a large message are.
template <auto MoveBlock, class Registered, class Private>
[[gnu::always_inline]] inline bool move_blocks(Registered* registered, Private* own,
                                               std::size_t size) {
    for (Registered* const end = registered + size; registered != end;
         registered += kBlock, own += kBlock)
        if (!MoveBlock(registered, own)) return false;
    return true;
}

}  // namespace feroce::mem::word

#if defined(__x86_64__)
#include "mem/word_amd64.hpp"
#elif defined(__aarch64__)
#include "mem/word_arm64.hpp"
#else
#error "mem/ needs a word_<architecture>.hpp for this processor"
#endif

#undef FEROCE_FIX_UP
