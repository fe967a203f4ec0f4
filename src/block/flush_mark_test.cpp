// The mark of a flush by itself; file_fault_test.cpp has servers that are killed while they flush.
#include "block/flush_mark.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

namespace feroce::block::flush_mark_test {
namespace {

constexpr auto kClear = MarkState::Clear;
constexpr auto kInFlight = MarkState::InFlight;
constexpr auto kFailed = MarkState::Failed;

class Marked final : public FlushMark {
public:
    MarkState state = kClear;
    std::vector<MarkState> puts;
    int refuses = 0;

private:
    int put(MarkState to) override {
        if (refuses != 0) return refuses;
        puts.push_back(to);
        state = to;
        return 0;
    }
};

TEST(FlushMark, IsSetWhileAnyCallIsMade) {
    Marked mark;
    EXPECT_EQ(mark.begin(), 0);
    EXPECT_EQ(mark.begin(), 0);
    mark.end(false);
    EXPECT_EQ(mark.state, kInFlight);
    mark.end(false);
    EXPECT_EQ(mark.puts, (std::vector{kInFlight, kClear}));
}

TEST(FlushMark, AFailureStaysUntilItIsRecorded) {
    Marked mark;
    mark.begin();
    mark.begin();
    mark.end(true);
    EXPECT_EQ(mark.state, kFailed);
    mark.recorded(0);  // A record of before.
    EXPECT_EQ(mark.state, kFailed);
    mark.recorded(1);
    EXPECT_EQ(mark.state, kInFlight) << "the other call may fail, too";
    mark.end(true);
    mark.recorded(1);
    EXPECT_EQ(mark.state, kFailed);
    mark.begin();
    mark.end(false);
    EXPECT_EQ(mark.state, kFailed) << "a success later says nothing of what was lost";
    mark.recorded(2);
    EXPECT_EQ(mark.state, kClear);
}

TEST(FlushMark, AMarkThatCannotBeSetIsAFailure) {
    Marked mark;
    mark.refuses = ENOSPC;
    EXPECT_EQ(mark.begin(), ENOSPC);
    mark.refuses = 0;
    EXPECT_EQ(mark.begin(), 0);
    mark.end(false);
    EXPECT_EQ(mark.state, kFailed);
    mark.recorded(1);
    EXPECT_EQ(mark.state, kClear);
}

TEST(FlushMark, ThePredecessorsMeansWhatTheKernelSays) {
    for (const bool fine : {true, false}) {
        Marked mark;
        mark.state = kInFlight;
        const auto ask = [&] {
            EXPECT_EQ(mark.state, kFailed) << "a server that is killed while it asks is found out";
            return fine;
        };
        EXPECT_EQ(mark.flush_was_lost(kInFlight, ask), !fine);
        EXPECT_EQ(mark.state, fine ? kClear : kFailed);
        if (!fine) mark.recorded(1);
        EXPECT_EQ(mark.state, kClear);
    }
}

TEST(FlushMark, WhatIsKnownIsNotAsked) {
    const auto never = [] {
        ADD_FAILURE() << "the kernel is asked";
        return true;
    };
    Marked mark;
    EXPECT_FALSE(mark.flush_was_lost(kClear, never));
    EXPECT_TRUE(mark.flush_was_lost(kFailed, never));
}

}  // namespace
}  // namespace feroce::block::flush_mark_test
