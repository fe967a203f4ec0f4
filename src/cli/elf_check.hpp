// Whether the dynamic linker will give a program our libraries, from its file alone.
#pragma once

#include <optional>
#include <string>

namespace feroce::cli {

// As execvp looks for it; empty if there is none.
std::string find_program(const std::string& command);

// Why the program will not load libibverbs from `library_folder`, as the end of the sentence
// "PROGRAM does not use Feroce: it ..."; nothing if it can. Scripts can.
std::optional<std::string> why_not_ours(const std::string& program,
                                        const std::string& library_folder);

// Whether the program's own file asks for libibverbs. Scripts and dlopen are not seen.
bool needs_verbs(const std::string& program);

// The libibverbs that the program gets as things are, by the linker's order: RPATH,
// LD_LIBRARY_PATH, RUNPATH, the system's folders. Empty if none.
std::string verbs_library_of(const std::string& program);

}  // namespace feroce::cli
