// Landings: messages of an unreliable queue pair on their way into far memory, and all that came
// behind them. A receive completes, and host memory is written, when what came before is in memory.
//
// A message goes by pieces, each with a copy. A copy begins when its piece is full or the message
// ends, unless it has to wait for one of an earlier message: no order is expected of copies. What
// goes wrong is told when the turn of the message comes, so that receives complete in their order.
// Memory is bounded: a message that finds no room is lost, as on any network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/bytes.hpp"
#include "base/psn.hpp"
#include "base/time.hpp"
#include "transport/copies.hpp"
#include "transport/work.hpp"

namespace feroce::transport {

class Landings final : public FarWork {
public:
    // Of pieces, each of which counts kOverhead beside its bytes.
    static constexpr std::size_t kBytesMax = 8 * 1024 * 1024;
    static constexpr std::size_t kOverhead = 512;
    // A piece is compared with every one before it.
    static constexpr std::size_t kPiecesMax = 1024;

    // Where a message goes: a receive's list, or what a peer's key names.
    struct Target {
        FarList list;
        std::uint64_t length = 0;  // Of the list.
        bool is_write = false;
        Psn psn;  // Of the packet.
    };

    explicit Landings(QueuePair& qp) : qp_(qp) {}

    // Nothing is waited for, and nothing of the open message has failed.
    bool empty() const { return pieces_.empty() && failed_ == mem::Fault::None; }
    bool has_room(std::size_t bytes) const;
    // Bytes of the open message, at `offset` of it. False: no memory, and the message is lost.
    [[nodiscard]] bool add(const Target& target, std::uint64_t offset, ByteView bytes);
    // The open message is whole. `receive` completes with it. False as above.
    [[nodiscard]] bool end(const Target& target, const std::optional<Completion>& receive);
    void break_off();  // It is not: what has not begun does not.

    bool has_landed() const { return !pieces_.empty() && pieces_.front().landed(); }
    // What is in memory, as far as there is no gap. A failure moves the queue pair to ERR, and its
    // machine lets go of this object then.
    void settle(Instant now);
    void flush(Instant now);  // The receives of all that has not landed.
    const char* check_invariants() const;

private:
    struct Piece {
        FarList list;
        CopyGroupPtr group;  // Null: it has no bytes, or a fault.
        std::uint64_t offset = 0;
        std::uint32_t filled = 0;
        std::uint32_t capacity = 0;
        std::uint64_t message = 0;
        Psn psn;
        // Where a WRITE goes.
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
        mem::Fault fault = mem::Fault::None;  // It could not be staged or started.
        bool is_write = false;
        bool closed = false;  // Nothing is added to it any more.
        bool started = false;
        bool ends = false;    // Its message.
        bool broken = false;  // Its message broke off, and nobody hears of it.
        std::optional<Completion> receive = std::nullopt;  // That it ends.

        bool landed() const { return started && (group == nullptr || group->is_over()); }
        bool waits() const { return closed && !started; }
        bool holds_up(const Piece& later) const;
        std::size_t cost() const { return capacity + kOverhead; }
    };
    Piece& add_piece(const Target& target, std::uint64_t offset, std::uint32_t capacity);
    Piece& open_piece(const Target& target, std::uint64_t offset);
    void close_piece(Piece& piece);
    void start_piece(Piece& piece);
    void start_waiting();
    bool must_wait(const Piece& piece) const;
    mem::Fault finish(Piece& piece);
    void pop_front();
    void fail(Instant now, const Piece& last, mem::Fault fault);

    QueuePair& qp_;
    std::deque<Piece> pieces_;
    std::size_t bytes_ = 0;      // What they cost.
    std::size_t waiting_ = 0;    // Pieces whose copy waits for another.
    std::uint64_t message_ = 0;  // The open one, or the next.
    // The message whose pieces land now has one that failed.
    mem::Fault failed_ = mem::Fault::None;
};

}  // namespace feroce::transport
