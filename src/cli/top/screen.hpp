// TopScreen: what `feroce top` shows and what keys do to it. Pure: it makes lines of text, which a
// Terminal draws.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/top/terminal.hpp"
#include "cli/top/views.hpp"

namespace feroce::cli {

struct TopOptions {
    std::string view = {};    // All in plain output, and processes on a terminal, if empty.
    std::string sort = {};    // The title of a column; a table's own choice if empty.
    std::string filter = {};  // Only rows with this text in them.
    double every = 1;         // Seconds.
    bool once = false;
};

std::optional<TopView> view_named(const std::string& name);

// The table as a person has asked for it. `sort`: see TopOptions.
Table arranged_table(const TopSample& sample, TopView view, const std::string& sort, bool reversed,
                     const std::string& filter);

struct ScreenLine {
    std::string text;
    Style style = Style::Plain;
};

class TopScreen {
public:
    explicit TopScreen(const TopOptions& options);

    bool paused() const { return paused_; }
    bool done() const { return done_; }
    void press(int key);
    // `rows` lines at most.
    std::vector<ScreenLine> draw(const TopSample& sample, std::size_t rows, std::size_t columns);

private:
    void press_in_filter(int key);
    void turn_to(std::size_t view);
    void sort_by_next(int step);
    void draw_devices(const TopSample& sample, std::size_t rows, std::size_t columns,
                      std::vector<ScreenLine>& out) const;
    void draw_table(const Table& table, std::size_t end, std::size_t columns,
                    std::vector<ScreenLine>& out);
    std::string status(const Table& table) const;

    std::size_t view_ = 1;
    std::array<std::string, kTopViews.size()> sort_;  // By view.
    bool reversed_ = false;
    std::string filter_;
    bool asks_filter_ = false;  // Letters are the filter's.
    bool paused_ = false;
    bool done_ = false;
    std::size_t chosen_ = 0;           // The row whose sentence is shown in full.
    std::size_t first_ = 0;            // The first row on the screen.
    std::size_t page_ = 1;             // Rows that fit.
    std::vector<std::string> titles_;  // Of the table that was drawn last.
};

}  // namespace feroce::cli
