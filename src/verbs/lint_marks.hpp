// The mark that lint writes into the target of a READ until it completes (lint/words.hpp), and how
// it is found in what a program posts.
#pragma once

#include "base/bytes.hpp"
#include "lint/words.hpp"
#include "mem/slice.hpp"

namespace feroce::verbs {

bool has_mark(ByteView bytes);
// The program's own memory: what cannot be read has none.
bool memory_has_mark(mem::Slice memory);

// Numbers of a work request. An address may be one within what a pointer of the target names.
inline bool is_marked_address(std::uint64_t address) {
    return address >> 32 == lint::kMark >> 32;
}
inline bool is_marked_key(std::uint32_t key) {
    return key == lint::kMark >> 32 || key == (lint::kMark & 0xffff'ffff);
}
inline bool is_marked_word(std::uint64_t word) {
    return word == lint::kMark;
}

}  // namespace feroce::verbs
