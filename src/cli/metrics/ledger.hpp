// Ledger: sums of the processes' counters that never go down while it lives. A counter that falls
// is taken for one that began again, and what is left of the sum for new events; so what ended
// processes had counted stays in the sum.
//
// A process is labelled by its pid as long as it lives, if there was room when it was first seen.
// What all others counted is one sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "process/state_page.hpp"

namespace feroce::cli {

// By the name of a counter, or by error_key().
using Counts = std::map<std::string, std::uint64_t>;

// Keys begin with one of these; a slash is in no counter's name.
inline constexpr char kErrors[] = "error/";
inline constexpr char kRefusals[] = "refusal/";
std::string error_key(const process::StateError& error);

std::uint64_t count_of(const Counts& counts, const std::string& key);  // 0 if it is not there.
// Of all keys that begin so.
std::uint64_t sum_of(const Counts& counts, const std::string& prefix);

struct ProcessTotals {
    std::string command;
    std::string device;  // Its first: counters belong to a process.
    Counts counts;
    std::size_t queue_pairs = 0;
    bool labelled = false;
};

class Ledger {
public:
    explicit Ledger(std::size_t labelled_max) : labelled_max_(labelled_max) {}

    void take(const std::vector<process::StateReading>& readings);

    std::map<std::string, Counts> devices() const;  // All sums, by device.
    const std::map<std::uint32_t, ProcessTotals>& processes() const { return live_; }
    // Of processes without a label, live and ended. Empty if there never was one.
    ProcessTotals others() const;

private:
    using Page = std::pair<std::uint32_t, std::int64_t>;  // Of an ended process: pid and time.

    void take_live(const process::StateSnapshot& snapshot);
    void take_ended(const std::vector<process::StateReading>& readings);
    void retire(std::uint32_t pid);

    std::size_t labelled_max_;
    std::map<std::uint32_t, ProcessTotals> live_;
    std::map<std::string, Counts> ended_;  // By device.
    Counts ended_others_;
    std::set<Page> last_words_;  // Pages of ended processes that are in the sums, or too old.
    bool began_ = false;
};

}  // namespace feroce::cli
