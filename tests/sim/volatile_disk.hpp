// A disk with a cache that forgets: what was written counts as done at once, a flush brings it to
// the platter, and a crash keeps any part of what was not flushed, sector by sector; a flush that
// fails does the same, and is remembered as Linux does: by the file and by its file system, each of
// which tells a new descriptor only what it has told nobody yet. It outlives the servers that
// export it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/random.hpp"
#include "block/flush_mark.hpp"
#include "feroce/block/backend.hpp"
#include "feroce/task_group.hpp"

namespace feroce::sim {

// What the kernel remembers of failed write-backs (its errseq_t).
class WriteBackErrors {
public:
    using Cursor = std::uint64_t;  // Of a descriptor.
    void add() {
        ++count_;
        seen_ = false;
    }
    Cursor sample() const { return seen_ ? count_ : 0; }
    // Whether there was one since.
    bool take(Cursor& cursor) {
        const bool news = count_ != cursor;
        if (news) seen_ = true;
        cursor = count_;
        return news;
    }

private:
    std::uint64_t count_ = 0;
    bool seen_ = false;
};

class VolatileDisk {
public:
    VolatileDisk(std::size_t bytes, std::uint64_t seed)
        : random_(seed), seen_(bytes), platter_(bytes) {}

    std::size_t size() const { return seen_.size(); }
    std::uint64_t life() const { return life_; }
    int crashes() const { return static_cast<int>(life_) - 1; }
    std::uint64_t forgotten() const { return forgotten_; }  // Sectors, of all crashes.

    void read(std::uint64_t offset, std::span<std::byte> into) const;
    void write(std::uint64_t offset, std::span<const std::byte> from, bool through);
    void zero(std::uint64_t offset, std::uint64_t length);
    // A flush covers what was written before it began.
    std::size_t begin_flush() const { return first_ + log_.size(); }
    void end_flush(std::size_t mark);
    // Of what was not flushed any part is lost; it may be read until the next crash or not.
    void fail_flush();
    // The server's process is killed: what its back end has not begun does not happen.
    void kill() { ++deaths_; }
    std::uint64_t deaths() const { return deaths_; }
    // The server's machine is.
    void crash();
    // Another file of the same size takes its place, between two servers.
    void replace(std::uint64_t store);

    block::WriterRecord record{.store = 1};  // Durable at once.
    block::MarkState flush_mark = block::MarkState::Clear;
    WriteBackErrors file_errors, system_errors;
    // What is written reaches the disk.
    std::function<void(std::uint64_t offset, std::span<std::byte> bytes)> on_write = {};
    std::function<void()> on_flush = {};  // The kernel begins one.
    std::function<void()> on_loss = {};   // Something that was not flushed is gone.

private:
    struct Write {
        std::uint64_t offset;
        std::vector<std::byte> bytes;
    };
    void forget();
    void settle(const Write& write, std::size_t from, std::size_t size);

    Prng random_;
    std::uint64_t life_ = 1;
    std::uint64_t deaths_ = 0;
    std::uint64_t forgotten_ = 0;
    std::size_t first_ = 0;  // The number of the log's first entry.
    std::vector<Write> log_;
    std::vector<std::byte> seen_;
    std::vector<std::byte> platter_;
};

// It as a back end of one server's life, which takes its time.
class VolatileBackend final : public block::Backend {
public:
    struct Habits {
        double flush_fails = 0;
        double killed_flush_fails = 0;  // One that the kernel ends for a killed server.
        // Planted bugs, each of which must be found.
        bool tells_of_crashes = true;  // Whether clients learn that one has happened.
        bool tells_of_failed_flushes = true;
        bool keeps_grants = true;
        bool answers_when_done = true;  // False: before.
        bool marks_flushes = true;
        bool asks_the_kernel = true;  // What became of a flush whose server was killed.
    };
    VolatileBackend(rdma::Loop& loop, VolatileDisk& disk, Prng& random, const Habits& habits);

    block::Shape shape() override;
    void submit(block::BackendRequest& request) override { jobs_.spawn(work(request)); }
    std::optional<block::WriterRecord> writer_record() override { return disk_.record; }
    void keep(block::RecordRequest& request) override { jobs_.spawn(keep_slowly(request)); }

private:
    class Mark final : public block::FlushMark {
    public:
        explicit Mark(VolatileBackend& backend) : backend_(backend) {}

    private:
        int put(block::MarkState state) override {
            if (backend_.habits_.marks_flushes) backend_.disk_.flush_mark = state;
            return 0;
        }
        VolatileBackend& backend_;
    };
    bool system_is_fine();
    rdma::Task<void> work(block::BackendRequest& request);
    rdma::Task<void> keep_slowly(block::RecordRequest& request);
    rdma::Task<void> write_late(std::uint64_t offset, std::vector<std::byte> bytes);
    rdma::Task<int> flush(block::BackendRequest& request);
    void execute(block::BackendRequest& request);
    Duration pause();
    bool dead() const { return disk_.deaths() != deaths_; }

    rdma::Loop& loop_;
    VolatileDisk& disk_;
    Prng& random_;
    Habits habits_;
    std::uint64_t life_;
    std::uint64_t deaths_;
    WriteBackErrors::Cursor cursor_;  // Of the descriptor that flushes.
    Mark mark_{*this};
    std::uint64_t told_failures_ = 0;
    rdma::TaskGroup jobs_;
};

}  // namespace feroce::sim
