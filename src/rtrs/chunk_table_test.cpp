// The rules by which a repeated request takes effect once; the last test plays random histories.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/random.hpp"
#include "rtrs/chunk_table.hpp"

namespace feroce::rtrs {
namespace {

using Verdict = ChunkTable::Verdict;

TEST(ChunkTable, ANewRequestExecutesAndIsAnswered) {
    ChunkTable table(4);
    EXPECT_EQ(table.admit(2, 10, 1), Verdict::Execute);
    EXPECT_EQ(table.orphans(), 0u);
    EXPECT_EQ(table.finish(2, 5).answer_to, 1u);
    EXPECT_EQ(table.result(2), 5);
    EXPECT_EQ(table.admit(2, 11, 1), Verdict::Execute);
}

TEST(ChunkTable, ARepetitionOfAFinishedRequestIsOnlyAnswered) {
    ChunkTable table(1);
    EXPECT_EQ(table.admit(0, 10, 1), Verdict::Execute);
    table.path_closed(1);
    EXPECT_EQ(table.finish(0, 7).answer_to, kNoPath);
    EXPECT_EQ(table.admit(0, 10, 2), Verdict::Replay);
    EXPECT_EQ(table.result(0), 7);
    EXPECT_EQ(table.admit(0, 10, 3), Verdict::Replay);
}

TEST(ChunkTable, ARepetitionOfARunningRequestJoins) {
    ChunkTable table(1);
    EXPECT_EQ(table.admit(0, 10, 1), Verdict::Execute);
    EXPECT_EQ(table.admit(0, 10, 1), Verdict::Busy);
    table.path_closed(1);
    EXPECT_EQ(table.orphans(), 1u);
    EXPECT_EQ(table.admit(0, 10, 2), Verdict::Join);
    EXPECT_EQ(table.orphans(), 0u);
    const auto finished = table.finish(0, 0);
    EXPECT_EQ(finished.answer_to, 2u);
    EXPECT_FALSE(finished.release_held);
}

TEST(ChunkTable, ALateDuplicateIsStale) {
    ChunkTable table(1);
    EXPECT_EQ(table.admit(0, 10, 1), Verdict::Execute);
    table.finish(0, 0);
    EXPECT_EQ(table.admit(0, 12, 2), Verdict::Execute);
    EXPECT_EQ(table.admit(0, 10, 1), Verdict::Stale);
    table.finish(0, 0);
    EXPECT_EQ(table.admit(0, 10, 1), Verdict::Stale);
}

TEST(ChunkTable, AnotherRequestOnARunningChunkBreaksTheRules) {
    ChunkTable table(1);
    EXPECT_EQ(table.admit(0, 10, 1), Verdict::Execute);
    EXPECT_EQ(table.admit(0, 11, 2), Verdict::Busy);
    EXPECT_EQ(table.path_of(0), 1u);
}

TEST(ChunkTable, AKernelsRepetitionWaitsForTheFirst) {
    ChunkTable table(1);
    EXPECT_EQ(table.admit(0, 0, 1), Verdict::Execute);
    EXPECT_EQ(table.admit(0, 0, 1), Verdict::Busy);
    table.path_closed(1);
    EXPECT_EQ(table.admit(0, 0, 2), Verdict::Hold);
    auto finished = table.finish(0, 0);
    EXPECT_EQ(finished.answer_to, kNoPath);
    EXPECT_TRUE(finished.release_held);
    EXPECT_TRUE(table.running(0));
    finished = table.finish(0, 0);
    EXPECT_EQ(finished.answer_to, 2u);
    EXPECT_FALSE(finished.release_held);
    EXPECT_FALSE(table.running(0));
}

TEST(ChunkTable, AHeldRequestDiesWithItsPath) {
    ChunkTable table(1);
    EXPECT_EQ(table.admit(0, 0, 1), Verdict::Execute);
    EXPECT_EQ(table.admit(0, 0, 2), Verdict::Hold);
    table.path_closed(2);
    EXPECT_EQ(table.admit(0, 0, 3), Verdict::Hold);
    EXPECT_EQ(table.admit(0, 0, 4), Verdict::Hold);
    table.path_closed(3);
    EXPECT_TRUE(table.finish(0, 0).release_held);
    EXPECT_EQ(table.path_of(0), 4u);
}

// A client that repeats its requests through ever new paths, at any moment, in any state of the
// server: each number executes at most once, and every answer is the result of that.
TEST(ChunkTable, RandomHistoriesExecuteEachRequestOnce) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Prng random(seed);
        ChunkTable table(1);
        std::map<std::uint64_t, int> executions;
        std::uint64_t sequence = 1;
        PathNumber path = 1;
        bool sent = false;
        for (int step = 0; step < 300; ++step) {
            if (!sent) {
                const auto verdict = table.admit(0, sequence, path);
                ASSERT_TRUE(verdict == Verdict::Execute || verdict == Verdict::Join ||
                            verdict == Verdict::Replay);
                executions[sequence] += verdict == Verdict::Execute;
                sent = true;
                if (verdict == Verdict::Replay) {
                    ASSERT_EQ(table.result(0), static_cast<int>(sequence % 100));
                    ++sequence;
                    sent = false;
                }
            } else if (random.chance(0.5)) {
                if (!table.running(0)) continue;
                const auto finished = table.finish(0, static_cast<int>(sequence % 100));
                if (finished.answer_to == kNoPath) continue;
                ASSERT_EQ(finished.answer_to, path);
                ++sequence;
                sent = false;
            } else {
                table.path_closed(path++);
                sent = random.chance(0.3);  // Else the client knows already and repeats.
            }
            if (sent && !table.running(0)) sent = false;
        }
        for (const auto& [number, count] : executions) ASSERT_EQ(count, 1) << seed << ' ' << number;
    }
}

}  // namespace
}  // namespace feroce::rtrs
