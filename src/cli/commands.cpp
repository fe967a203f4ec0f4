#include "cli/commands.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "cli/attach.hpp"
#include "cli/capture/explain_capture.hpp"
#include "cli/completion.hpp"
#include "cli/devices.hpp"
#include "cli/doctor.hpp"
#include "cli/explain.hpp"
#include "cli/export.hpp"
#include "cli/export_door.hpp"
#include "cli/launch.hpp"
#include "cli/metrics/metrics.hpp"
#include "cli/output.hpp"
#include "cli/rdma_command.hpp"
#include "cli/run.hpp"
#include "cli/session.hpp"
#include "cli/show.hpp"
#include "cli/top/top.hpp"
#include "cli/trace.hpp"
#include "cli/web/web.hpp"

namespace feroce::cli {
namespace {

constexpr int kUsage = 2;

struct Arguments {
    OutputOptions options;
    std::vector<std::string> words;
    TraceOptions traced;
    std::string which;
    std::string capture;
    std::string config;
    ExportConfig exports;
    AttachOptions attached;
    MetricsOptions measured;
    TopOptions watched;
    WebOptions shown;
    bool writers = false;
    std::string evicted;
    bool reload = false;
};

std::optional<std::uint32_t> number(const std::string& text) {
    if (text.empty()) return std::nullopt;
    std::size_t used = 0;
    try {
        const unsigned long value = std::stoul(text, &used, 0);
        if (used == text.size() && value <= 0xffff'ffff) return static_cast<std::uint32_t>(value);
    } catch (const std::exception&) {
    }
    throw UsageError(fmt::format("{} is neither a pid nor a QPN", text));
}

CLI::App* add_show(CLI::App& app, Arguments& arguments, const char* name, const char* help,
                   void (*show)(const std::vector<std::string>&, const OutputOptions&)) {
    CLI::App* command = app.add_subcommand(name, help);
    command->fallthrough();
    command->add_option("words", arguments.words, "[show] [OBJECT] [DEV] [KEY VALUE]...");
    command->callback([&arguments, show] { show(arguments.words, arguments.options); });
    return command;
}

// What the command line says counts more than the file.
ExportConfig export_config(const Arguments& arguments, bool has_address, bool has_port) {
    ExportConfig config;
    if (!arguments.config.empty()) read_export_file(arguments.config, config);
    if (has_address) config.address = arguments.exports.address;
    if (has_port) config.port = arguments.exports.port;
    for (const std::string& word : arguments.words) config.exports.push_back(parse_export(word));
    if (config.exports.empty())
        throw UsageError("export needs a disk: feroce export NAME=PATH, or --config FILE");
    return config;
}

int export_disks(const Arguments& arguments, const CLI::App& command) {
    // By value: a thread may still read the file when the server has ended.
    const auto read = [arguments, has_address = command.count("--address") > 0,
                       has_port = command.count("--port") > 0] {
        return export_config(arguments, has_address, has_port);
    };
    return serve_exports({arguments.config, read});
}

void add_disk_commands(CLI::App& app, Arguments& arguments, int& status) {
    CLI::App* serve = app.add_subcommand("export", "serve disks to RNBD clients");
    serve->add_option("exports", arguments.words, "NAME=PATH[,ro][,session=NAME][,from=NETWORK]");
    serve->add_option("--config", arguments.config, "a file with more of them");
    serve->add_option("--address", arguments.exports.address, "to listen on; all if left out");
    serve->add_option("--port", arguments.exports.port, "1234 if left out");
    serve->add_flag("--writers", arguments.writers, "sessions that may write, of all servers");
    serve->add_option("--evict", arguments.evicted, "take the right to write this disk away");
    serve->add_flag("--reload", arguments.reload, "have the servers that run read their configs");
    serve->callback([&arguments, &status, serve] {
        if (arguments.writers)
            status = show_writers(arguments.options);
        else if (!arguments.evicted.empty())
            status = evict_writer(arguments.evicted);
        else if (arguments.reload)
            status = reload_configs(arguments.config);
        else
            status = export_disks(arguments, *serve);
    });

    AttachOptions& to = arguments.attached;
    CLI::App* take =
        app.add_subcommand("attach", "a server's disk as a block device or NBD socket here");
    take->add_option("server", to.servers, "its address, or several with commas")->required();
    take->add_option("disk", to.disk, "as the server calls it")->required();
    take->add_option("--port", to.port, "1234 if left out");
    take->add_option("--session", to.session, "the name of the session at the server");
    take->add_option("--access", to.access, "ro, rw or migration; rw if left out");
    take->add_option("--as", to.form, "auto, ublk or nbd; auto if left out")
        ->check(CLI::IsMember({"auto", "ublk", "nbd"}));
    take->add_option("--socket", to.socket, "where NBD clients find it");
    take->add_option("--patience", to.patience, "seconds to wait while no path is up; 30");
    take->add_flag("--foreground", to.foreground, "stay until it ends");
    take->callback([&to, &status] { status = attach(to); });

    CLI::App* leave = app.add_subcommand("detach", "end what attach began");
    leave->add_option("socket", arguments.which, "the device, the socket, or the URI")->required();
    leave->callback([&] { status = detach(arguments.which); });
}

void add_metrics(CLI::App& app, Arguments& arguments, int& status) {
    MetricsOptions& measured = arguments.measured;
    CLI::App* command =
        app.add_subcommand("metrics", "counters of live processes, for Prometheus and its kin");
    command->add_option("--format", measured.format, "openmetrics if left out, or text");
    command->add_option("--processes", measured.processes_max,
                        "so many have series of their own; 32");
    command->add_option("--qps", measured.qps_max, "so many queue pairs have; none");
    command->add_option("--listen", measured.listen,
                        "[ADDRESS:]PORT: serve /metrics there by HTTP; 127.0.0.1 if left out");
    command->add_option("--host", measured.hosts, "a further name that clients may use");
    command->add_option("--sysfs", measured.sysfs,
                        "a folder to get them as files, for exporters that read sysfs");
    command->add_option("--every", measured.every, "seconds; once if left out");
    command->callback([&] { status = metrics(measured); });
}

void add_top(CLI::App& app, Arguments& arguments, int& status) {
    TopOptions& watched = arguments.watched;
    CLI::App* command = app.add_subcommand(
        "top", "a live table: rates, round trips, what is sent again, last errors");
    command->fallthrough();
    command->add_flag("--once", watched.once, "print it once and end");
    command->add_option("--every", watched.every, "seconds between looks; 1");
    command->add_option("--view", watched.view, "devices, processes, qps, sessions or disks");
    command->add_option("--sort", watched.sort, "by the column of this title");
    command->add_option("--filter", watched.filter, "only rows with this text in them");
    command->callback([&] { status = top(watched, arguments.options); });
}

void add_web(CLI::App& app, Arguments& arguments, int& status) {
    CLI::App* command =
        app.add_subcommand("web", "a page for the browser: connections, rates, failures");
    command->add_option("--listen", arguments.shown.listen,
                        "[ADDRESS:]PORT of this machine's loopback; 127.0.0.1:8791 if left out");
    command->add_option("--pcap", arguments.shown.capture,
                        "a pcapng or pcap file: its packets as a ladder for each connection");
    command->callback([&] { status = web(arguments.shown); });
}

void add_explain(CLI::App& app, Arguments& arguments, int& status) {
    CLI::App* command = app.add_subcommand("explain", "why work requests failed, in words");
    command->fallthrough();
    command->add_option("which", arguments.which, "a pid or a QPN; all if left out");
    command->add_option("--pcap", arguments.capture,
                        "from a capture of port 4791 of any machines, a pcapng or pcap file");
    command->callback([&arguments, &status, command] {
        const std::optional<std::uint32_t> which = number(arguments.which);
        status = command->count("--pcap") > 0
                     ? explain_capture(arguments.capture, which, arguments.options)
                     : explain(which, arguments.options);
    });
}

void add_trace(CLI::App& app, Arguments& arguments, int& status) {
    TraceOptions& traced = arguments.traced;
    CLI::App* command = app.add_subcommand(
        "trace", "the packets of a capture, or how far live queue pairs are, a line each");
    command->fallthrough();
    command
        ->add_option("what", traced.what,
                     "a pcapng or pcap file; or a pid or QPN, to look at it live")
        ->required();
    CLI::Option* copy = command->add_option("--comment", traced.commented,
                                            "a copy of the file with the remarks in it");
    command
        ->add_option("--perfetto", traced.perfetto,
                     "write a trace that https://ui.perfetto.dev opens")
        ->excludes(copy);
    command->add_option("--lines", traced.lines, "live: end after so many");
    command->add_option("--every", traced.every, "live: milliseconds between looks; 50");
    command->callback([&] { status = trace(arguments.traced, arguments.options); });
}

void add_commands(CLI::App& app, Arguments& arguments, int& status) {
    app.add_subcommand(
        "run",
        "run [--lint[=abort] [--card NAME] [--any-order]] -- CMD ARGS: an unmodified RDMA program "
        "on the soft device");
    app.add_subcommand(
        "launch", "launch [-n N] [--address A] -- CMD ARGS: a cluster of N such programs here");
    app.add_subcommand("env", "print the export lines that do what run does")->callback([&status] {
        status = print_environment();
    });
    add_show(app, arguments, "dev", "the devices, as `rdma dev` shows them", show_devices);
    add_show(app, arguments, "link", "their ports, as `rdma link`", show_links);
    add_show(app, arguments, "res", "queue pairs of live processes, as `rdma resource`",
             show_resources)
        ->alias("resource");
    add_show(app, arguments, "stat", "counters of live processes, as `rdma statistic`",
             show_statistics)
        ->alias("statistic");
    CLI::App* sessions =
        app.add_subcommand("session", "sessions of live programs: paths, counters");
    sessions->fallthrough();
    sessions->add_option("words", arguments.words, "ls | show | stat | path ... | policy ...");
    sessions->callback([&] { status = session(arguments.words, arguments.options); });
    add_explain(app, arguments, status);
    add_trace(app, arguments, status);
    CLI::App* looks =
        app.add_subcommand("doctor", "what here would stop or slow RDMA, and how to mend it");
    looks->fallthrough();
    looks->add_option("program", arguments.which, "also whether this one would use Feroce");
    looks->callback([&] { status = doctor(arguments.which, arguments.options); });
    add_top(app, arguments, status);
    add_web(app, arguments, status);
    add_metrics(app, arguments, status);
    add_disk_commands(app, arguments, status);
}

constexpr char kAbout[] = "RDMA on any machine: a RoCEv2 NIC in user space";

void describe(CLI::App& app, Arguments& arguments, int& status) {
    app.set_version_flag("--version", "feroce " FEROCE_VERSION);
    app.add_flag("-j,--json", arguments.options.json, "print JSON");
    app.add_flag("-p,--pretty", arguments.options.pretty, "print JSON for people");
    app.require_subcommand(1);
    app.footer("feroce help COMMAND says more, and man feroce-COMMAND the rest.");
    add_commands(app, arguments, status);
}

// For the completion of shells.
int complete_words(const std::vector<std::string>& words) {
    CLI::App app(kAbout, "feroce");
    Arguments arguments;
    int status = 0;
    describe(app, arguments, status);
    return print_completion(app, words);
}

int parse_and_do(int argc, char** argv) {
    CLI::App app(kAbout, "feroce");
    Arguments arguments;
    int status = 0;
    describe(app, arguments, status);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& success) {  // --help and --version.
        return app.exit(success);
    } catch (const CLI::ParseError& error) {
        const bool unknown = app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-';
        fmt::print(stderr, "feroce: {}; try feroce --help\n",
                   unknown ? fmt::format("there is no command {}", argv[1]) : error.what());
        return kUsage;
    } catch (const UsageError& error) {
        fmt::print(stderr, "feroce: {}\n", error.what());
        return kUsage;
    }
    return status;
}

// The others are programs on the device, start some, or judge the settings of programs.
bool only_looks(const std::vector<std::string>& words) {
    const auto command = std::find_if(words.begin(), words.end(),
                                      [](const std::string& word) { return word[0] != '-'; });
    constexpr const char* kOthers[] = {"run", "launch", "export", "attach", "doctor"};
    return command == words.end() ||
           std::find(std::begin(kOthers), std::end(kOthers), *command) == std::end(kOthers);
}

// Takes the options of `run` that are about lint off the front, in FEROCE_LINT's words: mistakes
// are told of, or end the program. The device refuses a card that it does not know.
std::string take_lint_options(std::vector<std::string>& words) {
    constexpr std::string_view kCard = "--card";
    std::string mode, more;
    while (!words.empty()) {
        const std::string word = words[0];
        if (word == "--lint")
            mode = "warn";
        else if (word == "--lint=abort")
            mode = "abort";
        else if (word == "--any-order")
            more += ",order";
        else if (word == kCard && words.size() > 1)
            more += ",card=" + words[1], words.erase(words.begin());
        else if (word.rfind("--card=", 0) == 0)
            more += ",card=" + word.substr(kCard.size() + 1);
        else
            break;
        words.erase(words.begin());
    }
    return mode.empty() && more.empty() ? "" : (mode.empty() ? "warn" : mode) + more;
}

}  // namespace

int do_command(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    if (is_rdma_command(argv[0])) return answer_rdma(words, parse_and_do);
    // `help CMD` is `CMD --help`.
    std::string help = "--help";
    std::vector<char*> asked{argv[0], help.data()};
    if (!words.empty() && words[0] == "help") {
        if (words.size() > 1) asked.insert(asked.begin() + 1, argv[2]);
        return parse_and_do(static_cast<int>(asked.size()), asked.data());
    }
    if (only_looks(words)) forget_settings_of_programs();
    if (!words.empty() && words[0] == "complete")
        return complete_words({words.begin() + 1, words.end()});
    const bool asks_help = words.size() == 2 && (words[1] == "--help" || words[1] == "-h");
    const bool launches = !words.empty() && words[0] == "launch";
    const bool runs = !words.empty() && words[0] == "run";
    if ((!runs && !launches) || asks_help) return parse_and_do(argc, argv);
    words.erase(words.begin());
    if (launches) return launch(words);
    if (const std::string lint = take_lint_options(words); !lint.empty())
        ::setenv("FEROCE_LINT", lint.c_str(), 1);
    if (!words.empty() && words[0] == "--") {
        words.erase(words.begin());
    } else if (!words.empty() && words[0].rfind('-', 0) == 0) {
        fmt::print(stderr, "feroce: run has no option {}; try feroce run [--lint] -- CMD ARGS\n",
                   words[0]);
        return kUsage;
    }
    return run(words);
}

}  // namespace feroce::cli
