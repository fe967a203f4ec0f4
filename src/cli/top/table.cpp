#include "cli/top/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>

namespace feroce::cli {
namespace {

constexpr std::size_t kGap = 1;           // Between columns.
constexpr std::size_t kSentenceMin = 16;  // With less room a sentence is not begun.
constexpr char kSentenceTitle[] = "LAST ERROR";

char lower(char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

bool is_in(const std::string& part, const std::string& whole) {
    return std::search(whole.begin(), whole.end(), part.begin(), part.end(),
                       [](char a, char b) { return lower(a) == lower(b); }) != whole.end();
}

std::vector<std::size_t> widths_of(const Table& table) {
    std::vector<std::size_t> out;
    for (const TableColumn& column : table.columns) out.push_back(column.title.size());
    for (const TableRow& row : table.rows)
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] = std::max(out[i], row.cells[i].text.size());
    return out;
}

// Which columns are shown, in their order.
std::vector<std::size_t> columns_that_fit(const Table& table,
                                          const std::vector<std::size_t>& widths,
                                          std::size_t width) {
    std::vector<std::size_t> by_rank(table.columns.size());
    std::iota(by_rank.begin(), by_rank.end(), 0);
    std::stable_sort(by_rank.begin(), by_rank.end(), [&table](std::size_t a, std::size_t b) {
        return table.columns[a].rank < table.columns[b].rank;
    });
    std::vector<std::size_t> out;
    std::size_t used = 0;
    for (const std::size_t i : by_rank) {
        const std::size_t more = widths[i] + (out.empty() ? 0 : kGap);
        if (used + more > width && !out.empty()) break;
        used += more;
        out.push_back(i);
    }
    std::sort(out.begin(), out.end());
    return out;
}

void add_field(std::string& line, const std::string& text, std::size_t width, bool right) {
    if (!line.empty()) line.append(kGap, ' ');
    const std::string blank(width - std::min(width, text.size()), ' ');
    line += right ? blank + text : text + blank;
}

std::string finish(std::string line, const std::string& sentence, std::size_t width) {
    if (!sentence.empty() && line.size() + kGap + kSentenceMin <= width)
        line += std::string(kGap, ' ') + sentence;
    if (line.size() > width) line.resize(width);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return line;
}

std::string scaled(double value) {
    constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P", "E"};
    std::size_t unit = 0;
    while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
        value /= 1000;
        ++unit;
    }
    const bool whole = unit == 0
                           ? value == static_cast<double>(static_cast<long>(value)) || value >= 10
                           : value >= 99.95;
    return fmt::format("{:.{}f}{}", value, whole ? 0 : 1, kUnits[unit]);
}

}  // namespace

std::optional<std::size_t> Table::column(const std::string& title) const {
    const auto same = [&title](const TableColumn& c) {
        return c.title.size() == title.size() && is_in(title, c.title);
    };
    const auto found = std::find_if(columns.begin(), columns.end(), same);
    if (found == columns.end()) return std::nullopt;
    return static_cast<std::size_t>(found - columns.begin());
}

void sort_rows(Table& table, std::size_t column, bool reversed) {
    table.sorted_by = column;
    const bool number = table.columns[column].number;
    const auto less = [column, number](const TableRow& a, const TableRow& b) {
        const TableCell& x = a.cells[column];
        const TableCell& y = b.cells[column];
        return number ? x.value > y.value : x.text < y.text;
    };
    std::stable_sort(
        table.rows.begin(), table.rows.end(),
        [&](const TableRow& a, const TableRow& b) { return reversed ? less(b, a) : less(a, b); });
}

void filter_rows(Table& table, const std::string& text) {
    std::erase_if(table.rows, [&text](const TableRow& row) {
        return !is_in(text, row.sentence) &&
               std::none_of(row.cells.begin(), row.cells.end(),
                            [&text](const TableCell& cell) { return is_in(text, cell.text); });
    });
}

std::vector<std::string> render_rows(const Table& table, std::size_t width, std::size_t first,
                                     std::size_t count) {
    const std::vector<std::size_t> widths = widths_of(table);
    const std::vector<std::size_t> shown = columns_that_fit(table, widths, width);
    const bool has_sentences = std::any_of(table.rows.begin(), table.rows.end(),
                                           [](const TableRow& r) { return !r.sentence.empty(); });
    std::vector<std::string> out;
    std::string head;
    for (const std::size_t i : shown)
        add_field(head, table.columns[i].title, widths[i], table.columns[i].number);
    out.push_back(finish(std::move(head), has_sentences ? kSentenceTitle : "", width));
    for (std::size_t r = first; r < table.rows.size() && r - first < count; ++r) {
        std::string line;
        for (const std::size_t i : shown)
            add_field(line, table.rows[r].cells[i].text, widths[i], table.columns[i].number);
        out.push_back(finish(std::move(line), table.rows[r].sentence, width));
    }
    return out;
}

TableCell text_cell(std::string text) {
    return {std::move(text), 0};
}

TableCell number_cell(std::uint64_t value) {
    return {std::to_string(value), static_cast<double>(value)};
}

TableCell rate_cell(const std::optional<double>& rate) {
    if (!rate) return {"-", -std::numeric_limits<double>::infinity()};
    return {scaled(*rate), *rate};
}

TableCell size_cell(std::uint64_t bytes) {
    return {scaled(static_cast<double>(bytes)), static_cast<double>(bytes)};
}

TableCell time_cell(std::uint64_t nanoseconds) {
    const auto value = static_cast<double>(nanoseconds);
    if (nanoseconds == 0) return {"-", 0};
    if (nanoseconds < 10'000) return {fmt::format("{:.1f}us", value / 1e3), value};
    if (nanoseconds < 1'000'000) return {fmt::format("{:.0f}us", value / 1e3), value};
    if (nanoseconds < 1'000'000'000) return {fmt::format("{:.1f}ms", value / 1e6), value};
    return {fmt::format("{:.1f}s", value / 1e9), value};
}

}  // namespace feroce::cli
