#include "cli/metrics/ledger.hpp"

#include <algorithm>

namespace feroce::cli {
namespace {

// What a process has now, and not what it counted: ends with it.
constexpr char kRingMemory[] = "ring_memory_bytes";

void add(const Counts& from, Counts& to) {
    for (const auto& [key, value] : from) to[key] += value;
}

Counts counts_of(const process::StateSnapshot& snapshot) {
    Counts out;
    for (const process::StateCounter& counter : snapshot.counters)
        out[counter.name] += counter.value;
    for (const process::StateError& error : snapshot.errors) out[error_key(error)] += error.count;
    return out;
}

ProcessTotals totals_of(const process::StateSnapshot& snapshot) {
    return {.command = snapshot.command,
            .device = snapshot.devices.empty() ? "" : snapshot.devices.front(),
            .counts = counts_of(snapshot),
            .queue_pairs = snapshot.qps.size() + snapshot.qps_left_out};
}

// Another process with the pid of one that ended between two looks.
bool is_another(const ProcessTotals& before, const ProcessTotals& now) {
    return before.command != now.command ||
           std::any_of(before.counts.begin(), before.counts.end(), [&now](const auto& entry) {
               return entry.first != kRingMemory &&
                      count_of(now.counts, entry.first) < entry.second;
           });
}

}  // namespace

std::string error_key(const process::StateError& error) {
    return (error.at_responder ? kRefusals : kErrors) + error.status + "/" + error.cause;
}

std::uint64_t count_of(const Counts& counts, const std::string& key) {
    const auto found = counts.find(key);
    return found == counts.end() ? 0 : found->second;
}

std::uint64_t sum_of(const Counts& counts, const std::string& prefix) {
    std::uint64_t sum = 0;
    for (auto i = counts.lower_bound(prefix); i != counts.end(); ++i) {
        if (i->first.rfind(prefix, 0) != 0) break;
        sum += i->second;
    }
    return sum;
}

void Ledger::retire(std::uint32_t pid) {
    const auto found = live_.find(pid);
    if (found == live_.end()) return;
    ProcessTotals& totals = found->second;
    totals.counts.erase(kRingMemory);
    add(totals.counts, ended_[totals.device]);
    if (!totals.labelled) add(totals.counts, ended_others_);
    live_.erase(found);
}

void Ledger::take_live(const process::StateSnapshot& snapshot) {
    ProcessTotals now = totals_of(snapshot);
    const auto known = live_.find(snapshot.pid);
    if (known != live_.end() && !is_another(known->second, now)) {
        // Sums under the device that it had first: one process's counters are not torn apart.
        if (!known->second.device.empty()) now.device = known->second.device;
        now.labelled = known->second.labelled;
        known->second = std::move(now);
        return;
    }
    retire(snapshot.pid);
    const auto labelled = std::count_if(live_.begin(), live_.end(),
                                        [](const auto& entry) { return entry.second.labelled; });
    now.labelled = static_cast<std::size_t>(labelled) < labelled_max_;
    live_[snapshot.pid] = std::move(now);
}

// A process that ended with something to explain has left a page, with its last counts. Those that
// lay there when we began are an older story.
void Ledger::take_ended(const std::vector<process::StateReading>& readings) {
    std::set<Page> pages;
    for (const process::StateReading& reading : readings) {
        if (reading.alive) continue;
        const Page page{reading.snapshot.pid, reading.changed_ns};
        pages.insert(page);
        if (!began_ || last_words_.count(page) != 0) continue;
        take_live(reading.snapshot);
        retire(reading.snapshot.pid);
    }
    last_words_ = std::move(pages);
    began_ = true;
}

void Ledger::take(const std::vector<process::StateReading>& readings) {
    take_ended(readings);
    std::set<std::uint32_t> alive;
    for (const process::StateReading& reading : readings)
        if (reading.alive) alive.insert(reading.snapshot.pid);
    std::vector<std::uint32_t> gone;
    for (const auto& [pid, totals] : live_)
        if (alive.count(pid) == 0) gone.push_back(pid);
    for (const std::uint32_t pid : gone) retire(pid);
    for (const process::StateReading& reading : readings)
        if (reading.alive) take_live(reading.snapshot);
}

std::map<std::string, Counts> Ledger::devices() const {
    std::map<std::string, Counts> out = ended_;
    for (const auto& [pid, totals] : live_) add(totals.counts, out[totals.device]);
    out.erase("");  // Of processes that have opened none.
    return out;
}

ProcessTotals Ledger::others() const {
    ProcessTotals out;
    out.counts = ended_others_;
    for (const auto& [pid, totals] : live_) {
        if (totals.labelled) continue;
        add(totals.counts, out.counts);
        out.queue_pairs += totals.queue_pairs;
    }
    return out;
}

}  // namespace feroce::cli
