// simrun: runs seeded scenarios of the simulated network, one line a seed. A seed that fails is
// printed with what the checkers found, the command that runs it again and a capture of its
// packets.
#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "sim/workload/scenario.hpp"

namespace {

using feroce::sim::Finding;
using feroce::sim::Scenario;
using feroce::sim::Swarm;
using feroce::sim::TraceEvent;

struct Options {
    std::uint64_t seed = 1;
    std::uint64_t runs = 1;
    bool twice = false;
    bool trace = false;
    bool quiet = false;
    bool keep = false;
    std::string pcap;
    std::string seeds;
};

// Over all seeds: a test that never sees an error tests no error.
Scenario::StatusCounts all_completions;

struct Outcome {
    bool good = false;
    std::uint64_t hash = 0;
};

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

Outcome run_once(std::uint64_t seed, const Options& options, const std::string& pcap, bool report) {
    Swarm swarm = Swarm::draw(seed);
    swarm.keeps = options.keep;
    Scenario scenario(swarm);
    File file(pcap.empty() ? nullptr : std::fopen(pcap.c_str(), "wb"), &std::fclose);
    if (file) scenario.world().trace().capture_to(file.get());
    if (report && options.trace) scenario.world().trace().print_to(stdout);
    const bool good = scenario.run();
    const auto& trace = scenario.world().trace();
    if (report && (!good || !options.quiet)) {
        std::printf("seed %" PRIu64 ": %s hash=%016" PRIx64 " packets=%" PRIu64 " dropped=%" PRIu64
                    " completions=%" PRIu64 " %s\n",
                    seed, good ? "ok" : "FAILED", trace.hash(), trace.count(TraceEvent::Sent),
                    trace.count(TraceEvent::Dropped), trace.count(TraceEvent::Completed),
                    describe(swarm).c_str());
    }
    for (const Finding& finding : scenario.report().findings()) {
        if (report)
            std::printf("  [%s] at %.3f us: %s\n", finding.checker,
                        static_cast<double>(finding.when.time_since_epoch().count()) / 1000,
                        finding.text.c_str());
    }
    if (report)
        for (const auto& [status, count] : scenario.completions()) all_completions[status] += count;
    return {good, trace.hash()};
}

bool run_seed(std::uint64_t seed, const Options& options) {
    const Outcome first = run_once(seed, options, options.pcap, true);
    bool good = first.good;
    if (options.twice && run_once(seed, options, "", false).hash != first.hash) {
        std::printf("seed %" PRIu64 ": FAILED: a second run took another course\n", seed);
        good = false;
    }
    if (good) return true;
    std::string pcap = options.pcap;
    if (pcap.empty()) {
        pcap = "simrun-" + std::to_string(seed) + ".pcapng";
        run_once(seed, options, pcap, false);
    }
    std::printf("  reproduce: simrun --seed=%" PRIu64 " --trace    packets: %s\n", seed,
                pcap.c_str());
    return false;
}

// A seed at the start of each line, or none; what follows says what it once showed.
std::vector<std::uint64_t> seeds_of(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::uint64_t> seeds;
    for (std::string line; std::getline(file, line);) {
        char* end = nullptr;
        const std::uint64_t seed = std::strtoull(line.c_str(), &end, 10);
        if (end != line.c_str()) seeds.push_back(seed);
    }
    return seeds;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app{"Runs seeded simulations of the soft NIC with all checkers on."};
    app.add_option("--seed", options.seed, "First seed");
    app.add_option("--runs", options.runs, "How many seeds, counting up");
    app.add_option("--pcap", options.pcap, "Write a pcapng of all packets sent");
    app.add_option("--seeds", options.seeds, "A file of seeds to run before")
        ->check(CLI::ExistingFile);
    app.add_flag("--twice", options.twice, "Run every seed twice and compare the trace hashes");
    app.add_flag("--trace", options.trace, "Print every event");
    app.add_flag("--keep", options.keep, "Most nodes keep what follows a lost packet (ADR 34)");
    app.add_flag("--quiet", options.quiet, "Print only what fails, and the sum");
    CLI11_PARSE(app, argc, argv);

    std::vector<std::uint64_t> seeds;
    if (!options.seeds.empty()) seeds = seeds_of(options.seeds);
    for (std::uint64_t i = 0; i < options.runs; ++i) seeds.push_back(options.seed + i);
    std::uint64_t failed = 0;
    for (const std::uint64_t seed : seeds) {
        if (!run_seed(seed, options)) ++failed;
        std::fflush(stdout);
    }
    std::printf("completions by status:");
    for (const auto& [status, count] : all_completions)
        std::printf(" %d:%" PRIu64, static_cast<int>(status), count);
    std::printf("\n%zu seeds, %" PRIu64 " failed\n", seeds.size(), failed);
    return failed == 0 ? 0 : 1;
}
