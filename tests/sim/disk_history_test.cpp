// The judge of disks' histories, on histories of a few events: each rule broken once, and what
// comes close to breaking it.
#include "sim/disk_history.hpp"

#include <gtest/gtest.h>

namespace feroce::sim {
namespace {

using Answer = DiskHistory::Answer;
using HandleId = DiskHistory::HandleId;
using Version = DiskHistory::Version;
using WriteId = DiskHistory::WriteId;

class Histories : public testing::Test {
protected:
    WriteId begin(HandleId handle, DiskHistory::Promise promise = {}) {
        return history.begin_write(handle, 0, 1, promise);
    }
    void land_and_end(WriteId write) {
        history.landed(0, write);
        history.end_write(write, Answer::Done);
    }
    WriteId write(HandleId handle, DiskHistory::Promise promise = {}) {
        const WriteId id = begin(handle, promise);
        land_and_end(id);
        return id;
    }
    void flush(HandleId handle, Answer answer = Answer::Done) {
        history.end_flush(history.begin_flush(handle), answer);
    }
    void read(HandleId handle, Version found) {
        history.end_read(history.begin_read(handle, 0), {&found, 1});
    }
    void expect_fine() { EXPECT_EQ(history.verdict(), ""); }
    void expect_blamed(const std::string& what) {
        EXPECT_EQ(history.verdict().find(what), 0u) << history.verdict();
    }

    DiskHistory history{2};
    HandleId first = history.opened();
};

TEST_F(Histories, WhatWasFlushedStays) {
    const WriteId old = write(first);
    const WriteId flushed = write(first);
    flush(first);
    const WriteId later = write(first);
    history.lost();
    read(first, flushed);
    read(first, later);
    expect_fine();
    EXPECT_EQ(history.durable(), 2u);
    read(first, old);
    expect_blamed("a durable write is gone");
}

TEST_F(Histories, WhatWasNeverWrittenIsOlderThanAll) {
    read(first, 0);
    (void)write(first, {.fua = true});
    history.lost();
    expect_fine();
    read(first, 0);
    expect_blamed("a durable write is gone");
}

TEST_F(Histories, APreflushCoversWhatCameBefore) {
    const WriteId old = write(first);
    (void)write(first);
    (void)write(first, {.preflush = true});
    history.lost();
    read(first, old);
    expect_blamed("a durable write is gone");
}

TEST_F(Histories, AFlushCoversNothingThatIsNotAcknowledged) {
    const WriteId old = write(first);
    const WriteId open = begin(first);
    const std::size_t flush = history.begin_flush(first);
    land_and_end(open);
    history.end_flush(flush, Answer::Done);
    history.lost();
    read(first, old);
    expect_fine();
}

TEST_F(Histories, ACacheIsReadUntilItIsLost) {
    const WriteId old = write(first);
    (void)write(first);
    history.lost();
    read(first, old);
    expect_fine();
    (void)write(first);
    read(first, old);
    expect_blamed("an acknowledged write is gone");
}

TEST_F(Histories, WritesSideBySideHaveNoOrder) {
    const WriteId one = begin(first), other = begin(first, {.fua = true});
    land_and_end(other);
    land_and_end(one);
    read(first, one);
    read(first, other);
    expect_fine();
}

TEST_F(Histories, AReadThatBeganEarlierMayFindTheOlder) {
    const WriteId old = write(first);
    const std::size_t early = history.begin_read(first, 0);
    (void)write(first, {.fua = true});
    const Version found = old;
    history.end_read(early, {&found, 1});
    expect_fine();
}

TEST_F(Histories, TornSectorsAndWritesFromNowhere) {
    read(first, 7);
    expect_blamed("a write from nowhere");
    history = DiskHistory(2);
    read(history.opened(), std::nullopt);
    expect_blamed("a torn sector");
    history = DiskHistory(2);
    history.landed(0, 1);
    expect_blamed("nobody wrote what landed");
}

TEST_F(Histories, AnAcknowledgedWriteHasLandedOnce) {
    const WriteId twice = begin(first);
    history.landed(0, twice);  // A server's first life,
    land_and_end(twice);       // and its second.
    expect_fine();
    history.landed(0, twice);
    expect_blamed("a write landed again");
    history = DiskHistory(2);
    first = history.opened();
    history.end_write(begin(first), Answer::Done);
    expect_blamed("a write was acknowledged and has not landed");
}

TEST_F(Histories, AnOlderGenerationLandsNothing) {
    const WriteId before = begin(first), after = begin(first);
    history.landed(0, before);
    (void)history.opened();
    history.end_write(before, Answer::Done);  // The answer was late.
    history.end_write(after, Answer::Unknown);
    expect_fine();
    history.landed(0, after);
    expect_blamed("a write of an older generation landed");
}

TEST_F(Histories, AnOlderGenerationIsOlderWhateverItWasTold) {
    const WriteId unknown = begin(first);
    history.landed(0, unknown);
    const HandleId second = history.opened();
    read(second, unknown);
    expect_fine();
    (void)write(second, {.fua = true});
    read(second, unknown);
    expect_blamed("a durable write is gone");
}

TEST_F(Histories, AFailedFlushStaysFailed) {
    const std::size_t beside = history.begin_flush(first);
    flush(first, Answer::Lost);
    history.end_flush(beside, Answer::Done);
    (void)write(first);
    flush(first, Answer::Lost);
    const HandleId second = history.opened();
    flush(second);
    expect_fine();
    flush(first);
    expect_blamed("something was promised after a flush had failed");
    history = DiskHistory(2);
    first = history.opened();
    flush(first, Answer::Lost);
    (void)write(first, {.fua = true});
    expect_blamed("something was promised after a flush had failed");
}

TEST_F(Histories, AReplacedStoreIsNobodys) {
    const WriteId old = begin(first);
    const std::size_t during = history.begin_read(first, 0);
    (void)write(first, {.fua = true});
    history.replaced();
    const Version nothing = 0;
    history.end_read(during, {&nothing, 1});
    read(history.opened(), 0);
    expect_fine();
    DiskHistory copy = history;
    read(first, 0);
    expect_blamed("a replaced store was read as the old");
    history = copy;
    history.landed(0, old);
    expect_blamed("a write for a store that was replaced landed");
}

}  // namespace
}  // namespace feroce::sim
