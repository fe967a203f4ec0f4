// A table of text: which columns fit, in which order its rows are, and which of them are shown.
// Pure; what draws it is another's business.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace feroce::cli {

struct TableColumn {
    std::string title;
    bool number = false;  // To the right, and sorted from the largest down.
    int rank = 0;         // Where not all fit, those of the smallest rank are shown.
};

struct TableCell {
    std::string text;
    double value = 0;  // What numbers are sorted by.
};

struct TableRow {
    std::vector<TableCell> cells;
    std::string sentence;  // What went wrong there last; behind the columns as far as it fits.
};

struct Table {
    std::string name;
    std::vector<TableColumn> columns;
    std::vector<TableRow> rows;
    std::size_t sorted_by = 0;

    std::optional<std::size_t> column(const std::string& title) const;  // In any case of letters.
};

// Rows that are equal there keep their order.
void sort_rows(Table& table, std::size_t column, bool reversed);
// Keeps the rows that have the text in a cell or in their sentence, in any case of letters.
void filter_rows(Table& table, const std::string& text);

// The head and the rows from `first` on, `count` at most, each of at most `width` characters.
// Columns are as wide as in all rows, so that they do not move while one scrolls.
std::vector<std::string> render_rows(const Table& table, std::size_t width, std::size_t first,
                                     std::size_t count);

TableCell text_cell(std::string text);
TableCell number_cell(std::uint64_t value);
// 999, 12.3k, 4.5M; "-" if it is not known, which sorts behind all numbers.
TableCell rate_cell(const std::optional<double>& rate);
TableCell size_cell(std::uint64_t bytes);
TableCell time_cell(std::uint64_t nanoseconds);  // 12us, 1.3ms; "-" for 0.

}  // namespace feroce::cli
