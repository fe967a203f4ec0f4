#include "cli/completion.hpp"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace feroce::cli {
namespace {

class CompletionTest : public testing::Test {
protected:
    CompletionTest() {
        app_.add_flag("-j,--json", flag_, "print JSON");
        CLI::App* shown = app_.add_subcommand("res", "queue pairs");
        shown->alias("resource")->fallthrough();
        CLI::App* disk = app_.add_subcommand("attach", "a disk");
        disk->add_option("--access", text_, "ro, rw or migration");
        disk->add_option("--socket", text_, "where");
        disk->add_flag("--foreground", flag_, "stay");
        app_.add_subcommand("explain", "why");
        app_.add_subcommand("export", "serve disks")->add_option("--config", text_, "a file");
        app_.add_subcommand("run", "a program");
        app_.add_subcommand("launch", "a cluster");
        app_.add_subcommand("trace", "packets");
    }

    // The candidates, with + behind them for files and ! for programs.
    std::string words(const std::vector<std::string>& typed) {
        const Completion found = complete(app_, typed,
                                          {[] {
                                               return std::vector<Candidate>{{"feroce_lo", "lo"}};
                                           },
                                           [] {
                                               return std::vector<Candidate>{{"4711", "rping"}};
                                           }});
        std::string out;
        for (const Candidate& candidate : found.candidates) out += candidate.word + " ";
        return out + (found.files ? "+" : "") + (found.programs ? "!" : "");
    }

    CLI::App app_{"test", "feroce"};
    std::string text_;
    bool flag_ = false;
};

TEST_F(CompletionTest, OffersCommandsByTheirBeginning) {
    EXPECT_EQ(words({"ex"}), "explain export ");
    EXPECT_EQ(words({"re"}), "res resource ");
    EXPECT_EQ(words({"help", "tr"}), "trace ");
    EXPECT_EQ(words({"-j", "tr"}), "trace ");
    EXPECT_EQ(words({"nothing"}), "");
    EXPECT_EQ(words({}), "");
}

TEST_F(CompletionTest, OffersOptionsOfTheCommand) {
    EXPECT_EQ(words({"attach", "--"}), "--help --access --socket --foreground ");
    EXPECT_EQ(words({"res", "--j"}), "--json ");
    EXPECT_EQ(words({"run", "--l"}), "--lint --lint=abort ");
    EXPECT_EQ(words({"attach", "--foreground", "--so"}), "--socket ");
}

TEST_F(CompletionTest, OffersValuesAndArguments) {
    EXPECT_EQ(words({"attach", "--access", ""}), "ro rw migration ");
    EXPECT_EQ(words({"attach", "--access", "r"}), "ro rw ");
    EXPECT_EQ(words({"attach", "--socket", ""}), "+");
    EXPECT_EQ(words({"attach", "--foreground", ""}), "");
    EXPECT_EQ(words({"export", "--config", ""}), "+");
    EXPECT_EQ(words({"resource", "fer"}), "feroce_lo ");
    EXPECT_EQ(words({"explain", ""}), "4711 ");
    EXPECT_EQ(words({"trace", ""}), "4711 +");
}

TEST_F(CompletionTest, LeavesProgramsToTheShell) {
    EXPECT_EQ(words({"run", ""}), "!");
    EXPECT_EQ(words({"run", "--", "ib"}), "!");
    EXPECT_EQ(words({"run", "--", "rping", "-"}), "+");
    EXPECT_EQ(words({"run", "--card", "ml"}), "mlx5 ");
    EXPECT_EQ(words({"run", "--card", "mlx5", ""}), "!");
}

TEST_F(CompletionTest, OffersFilesToAProgram) {
    EXPECT_EQ(words({"run", "rping", ""}), "+");
    EXPECT_EQ(words({"run", "rping", "-"}), "+");
    EXPECT_EQ(words({"run", "rping", "--card", ""}), "+");
    EXPECT_EQ(words({"run", "--lint", "--card", "mlx5", "rping", ""}), "+");
    EXPECT_EQ(words({"run", "--lint", ""}), "!");
    EXPECT_EQ(words({"run", "--card"}), "--card ");
    EXPECT_EQ(words({"launch", "--nodes", "4", "rping", ""}), "+");
    EXPECT_EQ(words({"launch", "-n", "4", ""}), "!");
    EXPECT_EQ(words({"launch", "--nodes", ""}), "");
    EXPECT_EQ(words({"launch", "--no"}), "--nodes ");
}

}  // namespace
}  // namespace feroce::cli
