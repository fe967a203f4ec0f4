#include "cli/top/top.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <thread>

#include "cli/complain.hpp"
#include "cli/top/terminal.hpp"
#include "cli/top/watcher.hpp"

namespace feroce::cli {
namespace {

constexpr double kPauseMin = 0.1, kPauseMax = 3600;
// How long a key or a new sample may wait to be seen.
constexpr std::chrono::milliseconds kTurn{50};

std::chrono::milliseconds pause_of(const TopOptions& options) {
    return std::chrono::milliseconds(static_cast<long>(options.every * 1000));
}

void check(const TopOptions& options) {
    if (!(options.every >= kPauseMin && options.every <= kPauseMax))
        throw UsageError(fmt::format("top looks every {} to {} seconds, not every {}", kPauseMin,
                                     kPauseMax, options.every));
    const auto view = view_named(options.view);
    if (!options.view.empty() && !view)
        throw UsageError(fmt::format(
            "top has no table {}: devices, processes, qps, sessions, disks", options.view));
    if (options.sort.empty()) return;
    for (const TopView some : kTopViews)
        if ((!view || *view == some) && table_of({}, some).column(options.sort)) return;
    throw UsageError(fmt::format("top has no column {} to sort by", options.sort));
}

// Of a terminal; elsewhere nothing is cut off.
std::size_t width_of_stdout() {
    winsize size{};
    const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : std::numeric_limits<std::size_t>::max();
}

void print_tables(const TopSample& sample, const TopOptions& options) {
    const auto wanted = view_named(options.view);
    const char* gap = "";
    for (const TopView view : kTopViews) {
        if (wanted && *wanted != view) continue;
        const Table table = arranged_table(sample, view, options.sort, false, options.filter);
        if (table.rows.empty() && !wanted) continue;
        fmt::print("{}", gap);
        for (const std::string& line : render_rows(table, width_of_stdout(), 0, table.rows.size()))
            fmt::print("{}\n", line);
        gap = "\n";
    }
}

// Not on a terminal: a look after each pause, of one with rates.
int print_on(const TopOptions& options, const OutputOptions& output) {
    Sampler sampler;
    sampler.take(look_around());
    for (bool again = false;; again = true) {
        std::this_thread::sleep_for(pause_of(options));
        const TopSample sample = sampler.take(look_around());
        if (output.json) {
            print_json(json_of(sample), output);
        } else {
            if (again) fmt::print("\n");
            print_tables(sample, options);
        }
        if (std::fflush(stdout) != 0) return complain("the tables cannot be written");
        if (options.once) return 0;
    }
}

void draw(Terminal& terminal, TopScreen& screen, const TopSample& sample) {
    terminal.clear();
    std::size_t row = 0;
    for (const ScreenLine& line : screen.draw(sample, terminal.rows(), terminal.columns()))
        terminal.put(row++, line.text, line.style);
    terminal.show();
}

enum class Keys { None, Some, NoTerminal };

// Waits a turn for the first. All that have come are one change of the screen.
Keys take_keys(Terminal& terminal, TopScreen& screen) {
    Keys any = Keys::None;
    auto wait = kTurn;
    while (!screen.done()) {
        const int key = terminal.wait_for_key(wait);
        if (key == kGone) return Keys::NoTerminal;
        if (key == kNoKey) break;
        screen.press(key);
        any = Keys::Some;
        wait = std::chrono::milliseconds(0);
    }
    return any;
}

int watch(const TopOptions& options) {
    std::string why;
    const std::unique_ptr<Terminal> terminal = Terminal::open(why);
    if (terminal == nullptr) return complain(why);
    TopScreen screen(options);
    const Watcher watcher(pause_of(options));
    std::shared_ptr<const TopSample> shown = std::make_shared<const TopSample>();
    draw(*terminal, screen, *shown);
    while (!screen.done()) {
        const Keys keys = take_keys(*terminal, screen);
        if (keys == Keys::NoTerminal) return complain("the terminal is gone");
        std::shared_ptr<const TopSample> newest = screen.paused() ? shown : watcher.newest();
        if (keys == Keys::None && (newest == nullptr || newest == shown)) continue;
        if (newest != nullptr) shown = std::move(newest);
        draw(*terminal, screen, *shown);
    }
    return 0;
}

}  // namespace

int top(const TopOptions& options, const OutputOptions& output) {
    check(options);
    const bool interactive = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
    if (options.once || output.json || !interactive) return print_on(options, output);
    return watch(options);
}

}  // namespace feroce::cli
