#include "cli/top/screen.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace feroce::cli {
namespace {

constexpr int kEscape = 27;
constexpr std::size_t kDeviceRows = 4;  // Above the other tables, where there is room.
constexpr std::size_t kRowsForDevices = 16;
constexpr char kHelp[] =
    "q quit  Tab,1-5 table  s,S sort  r reverse  / filter  space pause  arrows choose";

std::string count(std::size_t number, const char* one, const char* many) {
    return fmt::format("{} {}", number, number == 1 ? one : many);
}

std::string heading(const TopSample& sample, bool paused) {
    std::string out = fmt::format(
        "feroce top: {}, {}, {}, {}", count(sample.processes.size(), "process", "processes"),
        count(sample.qps.size() + sample.qps_untold, "queue pair", "queue pairs"),
        count(sample.sessions.size(), "session", "sessions"),
        count(sample.disks.size(), "disk", "disks"));
    if (sample.qps_untold > 0) out += fmt::format(" ({} QPs not told of)", sample.qps_untold);
    return paused ? out + " [paused]" : out;
}

}  // namespace

std::optional<TopView> view_named(const std::string& name) {
    for (const TopView view : kTopViews)
        if (name == name_of(view)) return view;
    return std::nullopt;
}

Table arranged_table(const TopSample& sample, TopView view, const std::string& sort, bool reversed,
                     const std::string& filter) {
    Table table = table_of(sample, view);
    if (!filter.empty()) filter_rows(table, filter);
    sort_rows(table, table.column(sort).value_or(table.sorted_by), reversed);
    return table;
}

TopScreen::TopScreen(const TopOptions& options) : filter_(options.filter) {
    if (const auto view = view_named(options.view)) view_ = static_cast<std::size_t>(*view);
    sort_.fill(options.sort);
}

void TopScreen::turn_to(std::size_t view) {
    view_ = view;
    chosen_ = first_ = 0;
}

void TopScreen::sort_by_next(int step) {
    if (titles_.empty()) return;
    const auto now = std::find(titles_.begin(), titles_.end(), sort_[view_]) - titles_.begin();
    const auto size = static_cast<std::ptrdiff_t>(titles_.size());
    sort_[view_] = titles_[static_cast<std::size_t>((now + step + size) % size)];
}

void TopScreen::press_in_filter(int key) {
    if (key == kEscape) filter_.clear();
    if (key == kEscape || key == kEnter) asks_filter_ = false;
    if (key == kErase && !filter_.empty()) filter_.pop_back();
    if (key >= ' ' && key <= '~') filter_ += static_cast<char>(key);
    chosen_ = first_ = 0;
}

void TopScreen::press(int key) {
    if (key == kNoKey || key == kResized) return;
    if (asks_filter_) return press_in_filter(key);
    switch (key) {
        case 'q':
            done_ = true;
            return;
        case '\t':
            return turn_to((view_ + 1) % kTopViews.size());
        case 's':
        case '>':
            return sort_by_next(1);
        case 'S':
        case '<':
            return sort_by_next(-1);
        case 'r':
            reversed_ = !reversed_;
            return;
        case '/':
            asks_filter_ = true;
            return;
        case kEscape:
            filter_.clear();
            return;
        case ' ':
            paused_ = !paused_;
            return;
        case kUp:
        case 'k':
            chosen_ -= std::min<std::size_t>(chosen_, 1);
            return;
        case kDown:
        case 'j':
            ++chosen_;  // draw() knows how many there are.
            return;
        case kPageUp:
            chosen_ -= std::min(chosen_, page_);
            return;
        case kPageDown:
            chosen_ += page_;
            return;
        case kHome:
            chosen_ = 0;
            return;
        default:
            if (key >= '1' && key < '1' + static_cast<int>(kTopViews.size()))
                turn_to(static_cast<std::size_t>(key - '1'));
    }
}

std::string TopScreen::status(const Table& table) const {
    std::string out;
    for (std::size_t i = 0; i < kTopViews.size(); ++i)
        out += fmt::format("{}{} {}{}", i == view_ ? "[" : " ", i + 1, name_of(kTopViews[i]),
                           i == view_ ? "]" : " ");
    out += fmt::format("  by {}{}", table.columns[table.sorted_by].title,
                       reversed_ ? " reversed" : "");
    if (asks_filter_ || !filter_.empty())
        out += fmt::format("  /{}{}", filter_, asks_filter_ ? "_" : "");
    return out;
}

void TopScreen::draw_devices(const TopSample& sample, std::size_t rows, std::size_t columns,
                             std::vector<ScreenLine>& out) const {
    if (kTopViews[view_] == TopView::Devices || rows < kRowsForDevices) return;
    const Table table = arranged_table(sample, TopView::Devices, "", false, "");
    Style style = Style::Bold;
    for (std::string& line : render_rows(table, columns, 0, kDeviceRows)) {
        out.push_back({std::move(line), style});
        style = Style::Plain;
    }
}

void TopScreen::draw_table(const Table& table, std::size_t end, std::size_t columns,
                           std::vector<ScreenLine>& out) {
    page_ = end > out.size() + 1 ? end - out.size() - 1 : 1;
    chosen_ = std::min(chosen_, table.rows.empty() ? 0 : table.rows.size() - 1);
    first_ = std::clamp(first_, chosen_ >= page_ ? chosen_ - page_ + 1 : 0, chosen_);
    const std::vector<std::string> lines = render_rows(table, columns, first_, page_);
    for (std::size_t i = 0; i < lines.size() && out.size() < end; ++i)
        out.push_back({lines[i], i == 0                      ? Style::Bold
                                 : first_ + i - 1 == chosen_ ? Style::Reverse
                                                             : Style::Plain});
}

std::vector<ScreenLine> TopScreen::draw(const TopSample& sample, std::size_t rows,
                                        std::size_t columns) {
    const Table table = arranged_table(sample, kTopViews[view_], sort_[view_], reversed_, filter_);
    sort_[view_] = table.columns[table.sorted_by].title;
    titles_.clear();
    for (const TableColumn& column : table.columns) titles_.push_back(column.title);

    std::vector<ScreenLine> out{{heading(sample, paused_), Style::Bold}};
    draw_devices(sample, rows, columns, out);
    out.push_back({status(table), Style::Plain});
    const bool has_help = rows >= 6;
    // The sentence of the chosen row has two lines.
    const std::size_t below = has_help ? 3 : 0;
    draw_table(table, rows - std::min(rows, below), columns, out);
    if (has_help) {
        out.resize(rows - below);
        const std::string sentence =
            chosen_ < table.rows.size() ? table.rows[chosen_].sentence : std::string();
        out.push_back({sentence.substr(0, columns)});
        out.push_back({sentence.substr(std::min(sentence.size(), columns), columns)});
        out.push_back({kHelp, Style::Dim});
    }
    if (out.size() > rows) out.resize(rows);
    for (ScreenLine& line : out)
        if (line.text.size() > columns) line.text.resize(columns);
    return out;
}

}  // namespace feroce::cli
