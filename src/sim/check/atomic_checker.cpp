#include "sim/check/atomic_checker.hpp"

#include <algorithm>

namespace feroce::sim {

namespace {

std::string place_of(const WordKey& word) {
    return "word at byte " + std::to_string(word.offset) + " of node " + std::to_string(word.node);
}

}  // namespace

void FetchAddChecker::succeeded(const WordKey& word, std::uint64_t original) {
    if (words_[word].originals.insert(original).second) return;
    report_.fail(kName, place_of(word) + ": two additions both found " + std::to_string(original));
}

void FetchAddChecker::check(const WordKey& word, std::uint64_t value) {
    const Word& known = words_[word];
    const std::uint64_t done = known.originals.size();
    if (value < done || value > done + known.unknown) {
        report_.fail(kName, place_of(word) + ": holds " + std::to_string(value) + " after " +
                                std::to_string(done) + " additions that succeeded and " +
                                std::to_string(known.unknown) + " that failed");
    }
    if (!known.originals.empty() && *known.originals.rbegin() >= value) {
        report_.fail(kName, place_of(word) + ": holds " + std::to_string(value) +
                                " though an addition found " +
                                std::to_string(*known.originals.rbegin()));
    }
}

void CompareSwapChecker::posted(const WordKey& word, std::uint64_t compare, std::uint64_t swap) {
    Word& known = words_[word];
    if (known.predicted != compare) return;
    known.predicted = swap;
    known.possible.push_back(swap);
}

void CompareSwapChecker::succeeded(const WordKey& word, std::uint64_t expected,
                                   std::uint64_t original) {
    if (original == expected) return;
    report_.fail(kName, place_of(word) + ": found " + std::to_string(original) + ", not " +
                            std::to_string(expected));
}

void CompareSwapChecker::settle(const WordKey& word, std::uint64_t value) {
    Word& known = words_[word];
    if (std::find(known.possible.begin(), known.possible.end(), value) == known.possible.end())
        report_.fail(kName, place_of(word) + ": holds " + std::to_string(value) +
                                ", which nobody put there");
    known.predicted = value;
    known.possible = {value};
}

}  // namespace feroce::sim
