#include "cli/completion.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <string_view>

#include "cli/devices.hpp"
#include "cli/state.hpp"

namespace feroce::cli {
namespace {

enum class Choice { Nothing, Files, Programs, Devices, Processes };

// What an argument, or the value of an option, may be. Everything else is a file.
struct Argument {
    std::string_view command;
    std::string_view option;  // Empty: the arguments that are no options.
    const char* words;        // With spaces between.
    Choice choice;
};
constexpr Argument kArguments[] = {
    {"run", "", "", Choice::Programs},
    {"run", "--card", "mlx5 rxe efa", Choice::Nothing},
    {"launch", "", "", Choice::Programs},
    {"launch", "-n", "", Choice::Nothing},
    {"launch", "--nodes", "", Choice::Nothing},
    {"launch", "--address", "", Choice::Nothing},
    {"env", "", "", Choice::Nothing},
    {"dev", "", "show", Choice::Devices},
    {"link", "", "show", Choice::Devices},
    {"res", "", "show qp pid lqpn", Choice::Devices},
    {"stat", "", "show qp pid", Choice::Devices},
    {"session", "", "ls show stat path policy", Choice::Nothing},
    {"explain", "", "", Choice::Processes},
    {"trace", "", "", Choice::Processes},
    {"doctor", "", "", Choice::Programs},
    {"top", "", "", Choice::Nothing},
    {"top", "--view", "devices processes qps sessions disks", Choice::Nothing},
    {"metrics", "", "", Choice::Nothing},
    {"metrics", "--format", "openmetrics text", Choice::Nothing},
    {"web", "", "", Choice::Nothing},
    {"attach", "", "", Choice::Nothing},
    {"attach", "--access", "ro rw migration", Choice::Nothing},
    {"attach", "--as", "auto ublk nbd", Choice::Nothing},
};

// `run` and `launch` take their words themselves.
constexpr std::string_view kOwnOptions[][3] = {
    {"run", "--lint", "report mistakes in the use of verbs"},
    {"run", "--lint=abort", "and end the program at the first"},
    {"run", "--card", "hold it to the limits of a card"},
    {"run", "--any-order", "place bytes in any order"},
    {"launch", "-n", "how many"},
    {"launch", "--nodes", "how many"},
    {"launch", "--address", "of this machine, for all of them"},
};

bool is_option(std::string_view word) {
    return word.size() > 1 && word[0] == '-';
}

const Argument* find(std::string_view command, std::string_view option) {
    for (const Argument& argument : kArguments)
        if (argument.command == command && argument.option == option) return &argument;
    return nullptr;
}

void add_options(const CLI::App& app, std::vector<Candidate>& out) {
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames())
            out.push_back({"--" + name, option->get_description()});
        for (const std::string& name : option->get_snames())
            out.push_back({"-" + name, option->get_description()});
    }
}

void add_commands_of(const CLI::App& app, std::vector<Candidate>& out) {
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        out.push_back({command->get_name(), command->get_description()});
        for (const std::string& name : command->get_aliases())
            out.push_back({name, command->get_description()});
    }
    out.push_back({"help", "what a command takes"});
}

const CLI::App* command_of(const CLI::App& app, const std::string& name) {
    const auto found =
        app.get_subcommands([&](const CLI::App* command) { return command->check_name(name); });
    return name.empty() || found.empty() ? nullptr : found.front();
}

// True if the next word is the option's value.
bool wants_value(const CLI::App* command, std::string_view name, std::string_view option) {
    if (find(name, option) != nullptr) return true;
    if (command == nullptr) return false;
    const CLI::Option* known = command->get_option_no_throw(std::string(option));
    return known != nullptr && known->get_items_expected_max() > 0;
}

void add_arguments(std::string_view command, std::string_view option, const Live& live,
                   Completion& out) {
    const Argument* const argument = find(command, option);
    if (argument == nullptr) {
        out.files = true;
        return;
    }
    std::istringstream words(argument->words);
    for (std::string word; words >> word;) out.candidates.push_back({word, ""});
    std::vector<Candidate> more;
    if (argument->choice == Choice::Devices) more = live.devices();
    if (argument->choice == Choice::Processes) more = live.processes();
    out.candidates.insert(out.candidates.end(), more.begin(), more.end());
    out.programs = argument->choice == Choice::Programs;
    out.files = argument->choice == Choice::Files || command == "trace";
}

void add_all_options(const CLI::App& app, const CLI::App* command, std::string_view name,
                     Completion& out) {
    if (command != nullptr) add_options(*command, out.candidates);
    if (command == nullptr || command->get_fallthrough()) add_options(app, out.candidates);
    for (const auto& [of, option, about] : kOwnOptions)
        if (of == name) out.candidates.push_back({std::string(option), std::string(about)});
}

// Where the program of `run` or `launch` is, which needs no -- before it; else `end`.
using Words = std::vector<std::string>::const_iterator;
Words program_in(std::string_view command, Words begin, Words end) {
    if (command != "run" && command != "launch") return end;
    for (; begin != end && is_option(*begin); ++begin)
        if (find(command, *begin) != nullptr && ++begin == end) break;  // With its value.
    return begin;
}

// One line: scripts read lines.
std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

std::vector<Candidate> listed_devices() {
    std::vector<Candidate> out;
    for (const DeviceInfo& device : list_devices()) out.push_back({device.name, device.interface});
    return out;
}

std::vector<Candidate> known_processes() {
    std::vector<Candidate> out;
    for (const process::StateReading& process : all_processes())
        out.push_back({std::to_string(process.snapshot.pid), process.snapshot.command});
    return out;
}

}  // namespace

Completion complete(const CLI::App& app, const std::vector<std::string>& words, const Live& live) {
    Completion out;
    if (words.empty()) return out;
    const std::string& current = words.back();
    const auto end = words.end() - 1;
    const auto dashes = std::find(words.begin(), end, "--");
    if (dashes != end) {  // The rest is a program and its words.
        out.programs = dashes + 1 == end;
        out.files = !out.programs;
        return out;
    }
    const auto named = std::find_if(words.begin(), end, [](const auto& w) { return w[0] != '-'; });
    const std::string name = named == end ? "" : *named;
    if (named != end && program_in(name, named + 1, end) != end) {
        out.files = true;
        return out;
    }
    const CLI::App* const command = command_of(app, name);
    const std::string before = named == end ? "" : *(end - 1);
    const bool has_value = is_option(before) && wants_value(command, name, before);
    if (has_value)
        add_arguments(name, before, live, out);
    else if (is_option(current) || current == "-")
        add_all_options(app, command, name, out);
    else if (name.empty() || name == "help")
        add_commands_of(app, out.candidates);
    else
        add_arguments(command == nullptr ? name : command->get_name(), "", live, out);
    std::erase_if(out.candidates,
                  [&](const Candidate& c) { return c.word.rfind(current, 0) != 0; });
    return out;
}

int print_completion(const CLI::App& app, const std::vector<std::string>& words) {
    const Completion found = complete(app, words, {listed_devices, known_processes});
    for (const Candidate& candidate : found.candidates)
        fmt::print("{}\t{}\n", candidate.word, first_line(candidate.about));
    if (found.files) fmt::print(":files\n");
    if (found.programs) fmt::print(":programs\n");
    return 0;
}

}  // namespace feroce::cli
