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

}  // namespace feroce::cli
