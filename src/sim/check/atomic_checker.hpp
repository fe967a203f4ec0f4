// FetchAddChecker: everybody adds 1 to shared words, so the values handed back are all different
// and the final sum equals the number of additions: applied twice or not at all shows at once.
// CompareSwapChecker: a word that one queue pair swaps through a chain of values; each swap must
// find what the one before it left.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "sim/check/report.hpp"

namespace feroce::sim {

struct WordKey {
    std::uint32_t node = 0;
    std::uint64_t offset = 0;

    friend auto operator<=>(const WordKey&, const WordKey&) = default;
};

class FetchAddChecker {
public:
    static constexpr const char* kName = "fetch-add";

    explicit FetchAddChecker(Report& report) : report_(report) {}

    void succeeded(const WordKey& word, std::uint64_t original);
    void failed(const WordKey& word) { ++words_[word].unknown; }  // May have been applied or not.
    void check(const WordKey& word, std::uint64_t value);         // Nothing is under way any more.

private:
    struct Word {
        std::set<std::uint64_t> originals;
        std::uint64_t unknown = 0;
    };

    Report& report_;
    std::map<WordKey, Word> words_;
};

class CompareSwapChecker {
public:
    static constexpr const char* kName = "compare-swap";

    explicit CompareSwapChecker(Report& report) : report_(report) {}

    // In post order. What it should find, given that all before it are executed.
    std::uint64_t expected(const WordKey& word) { return words_[word].predicted; }
    void posted(const WordKey& word, std::uint64_t compare, std::uint64_t swap);
    void succeeded(const WordKey& word, std::uint64_t expected, std::uint64_t original);
    // The queue pair is gone: the word holds the last value known or one that was on its way.
    void settle(const WordKey& word, std::uint64_t value);

private:
    struct Word {
        std::uint64_t predicted = 0;
        std::vector<std::uint64_t> possible{0};  // Since the last settle.
    };

    Report& report_;
    std::map<WordKey, Word> words_;
};

}  // namespace feroce::sim
