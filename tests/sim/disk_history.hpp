// DiskHistory: the history of one disk, as its clients and its store tell it, and the judge over
// it. No disk, no network and no clock in it: it is told what happened, one event after the other.
//
// - An acknowledged write has landed, and does not land again.
// - A write lands only as long as nobody else has opened the disk for writing since its handle did,
//   and the store has not been replaced.
// - What a flush covers (all of its handle that was acknowledged before it began) is durable when
//   the flush is done, as is a write with FUA: no later read finds something older.
// - An acknowledged write is read, or something newer, unless the store has lost its cache.
// - After a flush of a handle was answered with EIO nothing of that handle is promised any more.
//
// The store may lose what is not durable at any time, if it says so by lost(). Handles are opened
// one after the other, so their numbers are the order of their generations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace feroce::sim {

class DiskHistory {
public:
    using HandleId = std::uint32_t;          // From 1.
    using WriteId = std::uint32_t;           // From 1, and 0 for what was never written.
    using Version = std::optional<WriteId>;  // Nothing: a torn sector.
    enum class Answer : std::uint8_t {
        Done,
        Lost,     // EIO: it cannot be promised.
        Unknown,  // It may have happened or not, or may yet.
    };
    // What the success of a request promises besides.
    struct Promise {
        bool fua = false;       // Its own data is durable.
        bool preflush = false;  // So is all that was acknowledged before it began.
    };

    explicit DiskHistory(std::size_t sectors) : sectors_(sectors), writers_(sectors) {}

    // A client opened the disk for writing: whatever was open before is over.
    HandleId opened() { return newest_ = ++handles_; }
    HandleId handles() const { return handles_; }
    bool is_over(HandleId handle) const { return handle < newest_ || handle <= replaced_handle_; }

    WriteId begin_write(HandleId handle, std::size_t first, std::size_t count, Promise promise);
    void end_write(WriteId write, Answer answer);
    std::size_t begin_flush(HandleId handle);
    void end_flush(std::size_t flush, Answer answer);
    std::size_t begin_read(HandleId handle, std::size_t first);
    void end_read(std::size_t read, std::span<const Version> found);

    // The store: a sector has the write's content now.
    void landed(std::size_t sector, Version write);
    void lost() { ++losses_; }  // What was not durable may be gone.
    void replaced();            // By another one, full of zeroes.

    // The first violation, as a sentence; empty: none.
    const std::string& verdict() const { return verdict_; }
    std::size_t durable() const { return durable_; }  // Writes that were promised to stay.

private:
    using Time = std::uint64_t;
    static constexpr Time kNever = ~Time{0};
    struct Write {
        HandleId handle = 0;
        std::size_t first = 0, count = 0;
        Promise promise = {};
        Time begun = 0;
        Time acknowledged = kNever;
        Time durable = kNever;
        std::size_t sectors_landed = 0;
        std::uint64_t losses = 0;  // When it landed last.
    };
    struct Flush {
        HandleId handle = 0;
        Time begun = 0;
    };
    struct Read {
        HandleId handle = 0;
        std::size_t first = 0;
        Time begun = 0;
    };

    Time now() { return ++now_; }
    // Whether everything of the older one happened before the younger one began.
    bool is_before(WriteId older, const Write& younger) const;
    void cover(HandleId handle, Time begun);
    void make_durable(Write& write);
    void check_promise(HandleId handle, Time begun);
    void judge(std::size_t sector, Version found, const Read& read);
    void blame(const std::string& what, std::size_t sector);

    std::size_t sectors_;
    std::vector<std::vector<WriteId>> writers_;  // Of each sector, in the order of their beginning.
    std::vector<Write> writes_{1};
    std::vector<Flush> flushes_;
    std::vector<Read> reads_;
    std::map<HandleId, Time> refused_;  // When a flush of it was first answered with EIO.
    HandleId handles_ = 0;
    HandleId newest_ = 0;
    HandleId replaced_handle_ = 0;  // The last that knew the store before this one.
    Time replaced_at_ = 0;
    Time now_ = 0;
    std::uint64_t losses_ = 0;
    std::size_t durable_ = 0;
    std::string verdict_;
};

}  // namespace feroce::sim
