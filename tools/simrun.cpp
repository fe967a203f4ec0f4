// simrun: runs seeded scenarios of the simulated network, one line a seed. A seed that fails is
// printed with what the checkers found, the command that runs it again and a capture of its
// packets.
#include <getopt.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
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

// By getopt: a parser of templates takes longer to compile than all else here.
constexpr char kHelp[] =
    "Usage: simrun [OPTION]...\n"
    "Runs seeded simulations of the soft NIC with all checkers on.\n"
    "  --seed N     the first seed; 1\n"
    "  --runs N     how many seeds, counting up; 1\n"
    "  --seeds FILE a file of seeds to run before\n"
    "  --pcap FILE  write a pcapng of all packets sent\n"
    "  --twice      run every seed twice and compare the trace hashes\n"
    "  --trace      print every event\n"
    "  --keep       most nodes keep what follows a lost packet (ADR 34)\n"
    "  --quiet      print only what fails, and the sum\n"
    "  --help       this\n";

constexpr int kUsage = 2;
constexpr option kOptions[] = {
    {"seed", required_argument, nullptr, 's'},  {"runs", required_argument, nullptr, 'r'},
    {"seeds", required_argument, nullptr, 'f'}, {"pcap", required_argument, nullptr, 'p'},
    {"twice", no_argument, nullptr, '2'},       {"trace", no_argument, nullptr, 't'},
    {"keep", no_argument, nullptr, 'k'},        {"quiet", no_argument, nullptr, 'q'},
    {"help", no_argument, nullptr, 'h'},        {}};

bool read_number(const char* text, std::uint64_t& to) {
    char* end = nullptr;
    errno = 0;
    to = std::strtoull(text, &end, 0);
    return errno == 0 && *text >= '0' && *text <= '9' && *end == '\0';
}

// False: the argument is not what the option takes.
bool take(Options& options, int which, const char* argument) {
    switch (which) {
        case 's':
            return read_number(argument, options.seed);
        case 'r':
            return read_number(argument, options.runs);
        case 'f':
            options.seeds = argument;
            return true;
        case 'p':
            options.pcap = argument;
            return true;
        case '2':
            return options.twice = true;
        case 't':
            return options.trace = true;
        case 'k':
            return options.keep = true;
        case 'q':
            return options.quiet = true;
        case 'h':
            std::fputs(kHelp, stdout);
            std::exit(0);
        default:
            return false;
    }
}

std::optional<Options> parse(int argc, char** argv) {
    Options options;
    int which = 0;
    while ((which = getopt_long(argc, argv, "", kOptions, nullptr)) != -1) {
        if (take(options, which, optarg)) continue;
        std::fprintf(stderr, "simrun: this command line makes no sense; try --help\n");
        return std::nullopt;
    }
    if (optind == argc) return options;
    std::fprintf(stderr, "simrun: what is %s? try --help\n", argv[optind]);
    return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
    const std::optional<Options> parsed = parse(argc, argv);
    if (!parsed) return kUsage;
    const Options& options = *parsed;
    if (!options.seeds.empty() && !std::ifstream(options.seeds)) {
        std::fprintf(stderr, "simrun: cannot read %s\n", options.seeds.c_str());
        return kUsage;
    }
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
