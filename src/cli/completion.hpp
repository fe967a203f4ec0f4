// What a shell may offer for the word that its user types: `feroce complete WORD...`, which the
// completion scripts of cmake/package/ call. Commands and options are those that the parser knows,
// so there is no second table of them to keep.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace feroce::cli {

struct Candidate {
    std::string word;
    std::string about;  // A few words, or nothing.
};

struct Completion {
    std::vector<Candidate> candidates;
    bool files = false;     // Names of files fit too,
    bool programs = false;  // and so do those of programs.
};

// What exists on this machine; asked only where it fits.
struct Live {
    std::function<std::vector<Candidate>()> devices;
    std::function<std::vector<Candidate>()> processes;
};

// The words after `feroce`; the last one is incomplete, and may be empty.
Completion complete(const CLI::App& app, const std::vector<std::string>& words, const Live& live);

// Prints it, a line a candidate with a tab before what it is about; then `:files`, `:programs`.
int print_completion(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace feroce::cli
