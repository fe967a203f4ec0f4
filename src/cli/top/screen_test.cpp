#include "cli/top/screen.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace feroce::cli::screen_test {
namespace {

TopSample sample_of(std::size_t processes) {
    TopSample out;
    out.devices.push_back({.name = "feroce_eth0", .up = true, .processes = processes});
    for (std::size_t i = 0; i < processes; ++i) {
        TopProcess& p = out.processes.emplace_back();
        p.pid = static_cast<std::uint32_t>(1000 + i);
        p.command = i % 2 == 0 ? "even" : "odd";
        p.device = "feroce_eth0";
        p.traffic.sent_bytes = static_cast<double>(i) * 1'000'000;
        TopQp& qp = out.qps.emplace_back();
        qp.pid = p.pid;
        qp.command = p.command;
        qp.state.qpn = static_cast<std::uint32_t>(0x10000 + i);
    }
    return out;
}

std::string text_of(const std::vector<ScreenLine>& lines) {
    std::string out;
    for (const ScreenLine& line : lines) out += line.text + "\n";
    return out;
}

bool shows(const std::vector<ScreenLine>& lines, const std::string& text) {
    return text_of(lines).find(text) != std::string::npos;
}

void press(TopScreen& screen, const std::string& keys) {
    for (const char key : keys) screen.press(key);
}

std::string chosen(const std::vector<ScreenLine>& lines) {
    const auto found = std::find_if(lines.begin(), lines.end(), [](const ScreenLine& line) {
        return line.style == Style::Reverse;
    });
    return found == lines.end() ? "" : found->text;
}

TEST(TopScreen, FitsEveryTerminal) {
    TopSample sample = sample_of(30);
    sample.processes[3].last_error = std::string(300, 'e');
    for (const std::size_t rows : {1, 2, 5, 6, 7, 24, 100})
        for (const std::size_t columns : {1, 10, 40, 80, 300})
            for (const char* view : {"devices", "processes", "qps", "sessions", "disks"}) {
                TopScreen screen({.view = view});
                const auto lines = screen.draw(sample, rows, columns);
                EXPECT_LE(lines.size(), rows);
                for (const ScreenLine& line : lines) EXPECT_LE(line.text.size(), columns);
            }
}

TEST(TopScreen, HasTheMostImportantColumnsIn80) {
    const TopSample sample = sample_of(2);
    TopScreen screen({});
    const auto processes = screen.draw(sample, 24, 80);
    for (const char* title : {"PID", "COMMAND", "TX-B/s", "RX-B/s", "RESENT/s", "RTT", "ERRORS"})
        EXPECT_TRUE(shows(processes, title)) << title << "\n" << text_of(processes);
    screen.press('3');
    const auto qps = screen.draw(sample, 24, 80);
    for (const char* title : {"QPN", "STATE", "TX-P/s", "OUTST", "WINDOW", "RTT"})
        EXPECT_TRUE(shows(qps, title)) << title << "\n" << text_of(qps);
}

TEST(TopScreen, SortsByTheColumnThatKeysChoose) {
    const TopSample sample = sample_of(3);
    TopScreen screen({});
    EXPECT_EQ(chosen(screen.draw(sample, 24, 80)).substr(0, 4), "1002") << "sends most";
    screen.press('r');
    EXPECT_EQ(chosen(screen.draw(sample, 24, 80)).substr(0, 4), "1000");
    screen.press('r');
    // From TX-B/s back to QPS, DEVICE, COMMAND.
    press(screen, "SSS");
    const auto lines = screen.draw(sample, 24, 80);
    EXPECT_TRUE(shows(lines, "by COMMAND")) << text_of(lines);
    EXPECT_EQ(chosen(lines).substr(0, 4), "1000");
}

TEST(TopScreen, FiltersByTextThatIsTyped) {
    const TopSample sample = sample_of(4);
    TopScreen screen({});
    press(screen, "/OD");
    screen.press(kErase);
    press(screen, "dd");
    screen.press(kEnter);
    auto lines = screen.draw(sample, 24, 80);
    EXPECT_TRUE(shows(lines, "1001") && shows(lines, "1003")) << text_of(lines);
    EXPECT_FALSE(shows(lines, "1000"));
    EXPECT_FALSE(screen.done()) << "q may be typed into a filter";
    press(screen, "/q");
    EXPECT_FALSE(screen.done());
    press(screen, "\x1b");
    lines = screen.draw(sample, 24, 80);
    EXPECT_TRUE(shows(lines, "1000"));
    screen.press('q');
    EXPECT_TRUE(screen.done());
}

TEST(TopScreen, ScrollsToTheChosenRow) {
    TopSample sample = sample_of(100);
    sample.processes[50].last_error = "the peer refused the key";
    TopScreen screen({.sort = "pid"});
    screen.press('r');  // The smallest pid first.
    screen.draw(sample, 24, 80);
    for (int i = 0; i < 50; ++i) screen.press(kDown);
    auto lines = screen.draw(sample, 24, 80);
    EXPECT_EQ(chosen(lines).substr(0, 4), "1050");
    EXPECT_EQ(lines[lines.size() - 3].text, "the peer refused the key");
    for (int i = 0; i < 100; ++i) screen.press(kPageDown);
    EXPECT_EQ(chosen(screen.draw(sample, 24, 80)).substr(0, 4), "1099") << "the last";
    screen.press(kHome);
    EXPECT_EQ(chosen(screen.draw(sample, 24, 80)).substr(0, 4), "1000");
    // Fewer rows than were there.
    screen.press(kPageDown);
    EXPECT_EQ(chosen(screen.draw(sample_of(1), 24, 80)).substr(0, 4), "1000");
    EXPECT_EQ(chosen(screen.draw({}, 24, 80)), "");
}

TEST(TopTable, WritesNumbersShortly) {
    EXPECT_EQ(rate_cell(std::nullopt).text, "-");
    EXPECT_EQ(rate_cell(0.0).text, "0");
    EXPECT_EQ(rate_cell(0.5).text, "0.5");
    EXPECT_EQ(rate_cell(999.4).text, "999");
    EXPECT_EQ(rate_cell(999.6).text, "1.0k");
    EXPECT_EQ(rate_cell(123'456.0).text, "123k");
    EXPECT_EQ(rate_cell(4'560'000'000.0).text, "4.6G");
    EXPECT_EQ(time_cell(0).text, "-");
    EXPECT_EQ(time_cell(1'500).text, "1.5us");
    EXPECT_EQ(time_cell(250'000).text, "250us");
    EXPECT_EQ(time_cell(1'300'000).text, "1.3ms");
}

TEST(TopTable, ShowsTheFirstRanksWhereNotAllFit) {
    const Table table{"t",
                      {{"AAAA", false, 0}, {"BBBB", false, 2}, {"CCCC", true, 1}},
                      {{{text_cell("a"), text_cell("b"), number_cell(7)}, "a sentence"}},
                      0};
    EXPECT_EQ(render_rows(table, 9, 0, 9), (std::vector<std::string>{"AAAA CCCC", "a       7"}));
    EXPECT_EQ(render_rows(table, 14, 0, 9)[0], "AAAA BBBB CCCC");
    EXPECT_EQ(render_rows(table, 60, 0, 9)[1], "a    b       7 a sentence");
}

}  // namespace
}  // namespace feroce::cli::screen_test
