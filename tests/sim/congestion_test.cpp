// Congestion in simulation: eight nodes write to one through a 1 Gb/s link with a short queue, and
// one flow meets random loss. Where a peer goes back, a lost packet costs its whole tail, so the
// send window must keep the queue from overflowing. Times are virtual: nothing here depends on the
// machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "sim/bottleneck.hpp"

namespace feroce::sim {
namespace {

// The mean of some lengths of the line: which flow gets how much is chance at any one of them.
void expect_fair(bool keeps, const std::vector<int>& lengths, double jain_min) {
    double fairness = 0;
    for (const int delay_us : lengths) {
        Bottleneck bottleneck(8, {.delay = std::chrono::microseconds(delay_us), .keeps = keeps});
        const auto rates = bottleneck.measure();
        fairness += jain(rates) / static_cast<double>(lengths.size());
        std::printf("eight flows: goodput %.3f of the line, Jain %.3f, %llu of %llu dropped\n",
                    total(rates) / kLineBitsPerSecond, jain(rates),
                    static_cast<unsigned long long>(bottleneck.line().overflowed),
                    static_cast<unsigned long long>(bottleneck.line().frames));
        EXPECT_GE(total(rates) / kLineBitsPerSecond, 0.8);
    }
    EXPECT_GE(fairness, jain_min);
}

TEST(Congestion, EightFlowsShareALine) {
    expect_fair(false, {20}, 0.9);
}
TEST(Congestion, EightFlowsThatKeepPacketsShareALine) {
    expect_fair(true, {20, 22, 25}, 0.9);
}

// Queue pairs of one node that send to one place share a window. Each has its turn, though every
// acknowledgement opens the window for less than one of them wants to send; and none waits for a
// probe, as the last packet of a turn asks for an acknowledgement.
void expect_turns(const LineOptions& options) {
    Bottleneck bottleneck(16, options);
    const auto rates = bottleneck.measure();
    const transport::Counters& counters = bottleneck.world().node(1).engine(0).counters();
    const std::uint64_t probes = counters[transport::Counter::ResentByProbe];
    const double goodput = total(rates) / kLineBitsPerSecond;
    std::printf(
        "16 flows of one node: goodput %.3f, Jain %.3f, %llu of %llu dropped, %llu probes\n",
        goodput, jain(rates), static_cast<unsigned long long>(bottleneck.line().overflowed),
        static_cast<unsigned long long>(bottleneck.line().frames),
        static_cast<unsigned long long>(probes));
    EXPECT_GE(goodput, 0.9);
    EXPECT_GE(jain(rates), 0.9);
    EXPECT_LE(probes, bottleneck.line().frames / 1000);
}

TEST(Congestion, FlowsThatShareAWindowTakeTurns) {
    expect_turns({.path_mtu = 4096, .one_source = true});
    expect_turns({.keeps = true, .depth = 64, .path_mtu = 1024, .one_source = true});
}

// Far more senders than the queue has room for packets: a burst of each is lost at first, but no
// request fails by that.
TEST(Congestion, HundredsOfNodesWriteToOne) {
    using std::chrono::seconds;
    Bottleneck bottleneck(256, {.keeps = true,
                                .depth = 1,
                                .start = seconds(2),
                                .span = seconds(2),
                                .timeout = 16});  // 0.27 s.
    const auto rates = bottleneck.measure();
    std::printf("256 flows: goodput %.3f of the line, Jain %.3f, %llu timeouts\n",
                total(rates) / kLineBitsPerSecond, jain(rates),
                static_cast<unsigned long long>(bottleneck.timeouts()));
    EXPECT_GE(total(rates) / kLineBitsPerSecond, 0.9);
}

// Goodput under random loss, as published. A snapshot: a change of more than a tenth is one to look
// at, in either direction; write the new table into the file if it is meant.
TEST(Congestion, GoodputUnderLoss) {
    std::ifstream file(FEROCE_LOSS_TABLE);
    ASSERT_TRUE(file) << FEROCE_LOSS_TABLE;
    std::string header;
    std::getline(file, header);
    int delay_us = 0;
    double percent = 0;
    double published[2] = {};
    int rows = 0;
    while (file >> delay_us >> percent >> published[0] >> published[1]) {
        ++rows;
        std::printf("%d %.1f", delay_us, percent);
        for (const bool keeps : {false, true}) {
            Bottleneck bottleneck(1, {.loss = percent / 100,
                                      .delay = std::chrono::microseconds(delay_us),
                                      .keeps = keeps});
            const double measured = total(bottleneck.measure()) / 1e6;
            std::printf(" %.0f", measured);
            EXPECT_NEAR(measured, published[keeps], published[keeps] / 10)
                << delay_us << " us, " << percent << " % loss";
        }
        std::printf("\n");
    }
    EXPECT_EQ(rows, 8);
}

// The bars of what a loss may cost a flow that repairs it, of what is possible: the lossless figure
// without what is lost.
double possible(double lossless, double loss, double reorder) {
    if (reorder > 0) return 0.98 * lossless;
    const double share = loss == 0 ? 1 : loss < 0.5 ? 0.98 : loss < 2 ? 0.96 : 0.9;
    return share * (1 - loss / 100) * lossless;
}

// Enough in flight to fill a long line, in messages of 256 KiB: of READs no more than
// max_rd_atomic may be outstanding, and of those with something missing none is over.
LineOptions line_of(int delay_us) {
    LineOptions line{.loses_answers = true, .depth = 64};
    line.delay = std::chrono::microseconds(delay_us);
    if (line.delay < std::chrono::milliseconds(10)) return line;
    line.message_bytes = 256 * 1024;
    line.depth = 128;
    line.reads = 128;
    line.start = std::max<Duration>(80 * line.delay, std::chrono::milliseconds(2500));
    line.span = 20 * line.delay + std::chrono::milliseconds(300);
    return line;
}

// A snapshot too, of what operations, path MTUs and round trips make of it. Answers are lost as
// often as data. Going back is measured where it is not 0: a long line takes long to simulate.
TEST(Congestion, GoodputOfOperations) {
    std::ifstream file(FEROCE_GOODPUT_TABLE);
    ASSERT_TRUE(file) << FEROCE_GOODPUT_TABLE;
    std::string word;
    std::getline(file, word);
    const std::map<std::string, transport::SendOp> operations = {
        {"send", transport::SendOp::Send},
        {"write", transport::SendOp::Write},
        {"read", transport::SendOp::Read}};
    int path_mtu = 0, delay_us = 0, rows = 0;
    double loss = 0, reorder = 0, published[2] = {}, lossless = 0;
    while (file >> word >> path_mtu >> delay_us >> loss >> reorder >> published[0] >>
           published[1]) {
        ++rows;
        LineOptions line = line_of(delay_us);
        line.op = operations.at(word);
        line.path_mtu = static_cast<std::uint32_t>(path_mtu);
        line.loss = loss / 100;
        line.reorder = reorder / 100;
        double measured[2] = {};
        for (const bool keeps : {false, true}) {
            line.keeps = keeps;
            if (published[keeps] == 0) continue;
            measured[keeps] = total(Bottleneck(1, line).measure()) / 1e6;
            EXPECT_NEAR(measured[keeps], published[keeps], 1 + published[keeps] / 10)
                << word << " " << path_mtu << " " << delay_us << " " << loss;
        }
        std::printf("%s %d %d %g %g %.0f %.0f\n", word.c_str(), path_mtu, delay_us, loss, reorder,
                    measured[0], measured[1]);
        if (loss == 0 && reorder == 0) lossless = measured[1];
        // Far away, where a queue that overflows is seen late, less.
        const double share = loss == 0           ? 1
                             : delay_us > 50'000 ? 0.55 / 0.96
                             : delay_us > 10'000 ? 0.8 / 0.96
                                                 : 1;
        EXPECT_GE(measured[1], share * possible(lossless, loss, reorder)) << word << " " << loss;
    }
    EXPECT_EQ(rows, 50);
}

}  // namespace
}  // namespace feroce::sim
