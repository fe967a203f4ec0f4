// Names of functions, read from a program's symbol table: the loader knows only those that a
// program exports. For reports of lint, which are few.
#pragma once

#include <cstdint>
#include <string>

namespace feroce::verbs {

// The function at an offset from where the file is loaded; empty if it has no symbol table.
std::string function_at(const char* file, std::uint64_t offset);
std::string readable(const char* symbol);  // Demangled.

}  // namespace feroce::verbs
