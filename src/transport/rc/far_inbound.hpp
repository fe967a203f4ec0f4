// FarInbound: what a responder keeps while copies to or from far memory are on their way. Made when
// the first one is needed; a responder that meets only host memory has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "base/packet_number.hpp"
#include "transport/copies.hpp"
#include "transport/work.hpp"
#include "wire/packet.hpp"

namespace feroce::transport::rc {

struct FarInbound final : FarWork {
    // Beyond the first, acknowledgements wait for memory, which closes the peer's window. Beyond
    // the second, packets count as lost. The largest window of our own fits in between.
    static constexpr std::size_t kPromptMax = 2 * 1024 * 1024;
    static constexpr std::size_t kBytesMax = 8 * 1024 * 1024;
    // Counted for each piece and each kept packet, beside its bytes: a peer could send any number
    // of those that have none.
    static constexpr std::size_t kOverhead = 512;
    // A piece is compared with every one before it.
    static constexpr std::size_t kPiecesMax = 1024;

    // A part of a SEND or WRITE on its way to memory.
    struct Piece {
        FarList list;
        CopyGroupPtr group;
        std::uint64_t offset = 0;  // In the list.
        std::uint32_t filled = 0;
        std::uint32_t capacity = 0;
        PacketNumber first;  // The packet with its first byte.
        PacketNumber last;   // If it ends a message: that one's last packet.
        // Where a WRITE goes, so that the copy of a later one to the same bytes waits for it.
        std::uint64_t begin = 0;
        std::uint64_t end = ~std::uint64_t{0};
        bool closed = false;   // Nothing is added to it any more.
        bool started = false;  // Its copy is, or could not be: then the group has a fault.
        bool ends = false;
        bool is_send = false;
        std::optional<Completion> completion = std::nullopt;  // Of the receive that it ends.
        SrqNumber srq;                                        // XRC: of that receive.

        bool landed() const { return started && group->is_over(); }
        bool waits() const { return closed && !started; }
        bool meets(const Piece& other) const { return begin < other.end && other.begin < end; }
        std::size_t cost() const { return capacity + kOverhead; }
    };
    // A packet that is executed when all pieces are in memory.
    struct Kept {
        std::unique_ptr<std::byte[]> bytes;
        std::size_t size = 0;
        wire::Packet packet;  // Its views are of `bytes`.
        std::uint32_t packets = 1;

        std::size_t cost() const { return size + kOverhead; }
    };
    // A part of a READ on its way from memory, in the order of the answers.
    struct Read {
        CopyGroupPtr group;
        PacketNumber first;
        std::uint32_t packets = 0;
        mem::Fault fault = mem::Fault::None;  // It could not be started, and has no group.

        bool is_over() const { return group == nullptr || group->is_over(); }
        PacketNumber end() const { return first + packets; }
        bool has(PacketNumber number) const { return first <= number && number < end(); }
    };
    static constexpr std::size_t kReadsAhead = 8;

    std::deque<Piece> pieces;
    std::deque<Kept> kept;
    std::deque<Read> reads;
    std::deque<Piece> lost;     // After a failure: their receives are flushed.
    PacketNumber kept_end;      // If some are kept.
    std::size_t bytes = 0;      // What pieces and kept packets cost.
    std::uint32_t ends = 0;     // Messages that end in a piece.
    std::uint32_t waiting = 0;  // Pieces whose copy waits for another.
    bool gap = false;           // A packet is missing behind those that are kept.

    bool idle() const { return pieces.empty() && kept.empty() && reads.empty(); }
    // Whether that piece has to wait for one of an earlier message: no order is expected of copies.
    bool must_wait(const Piece& piece) const;
    bool lands() const { return !pieces.empty() && pieces.front().landed(); }
    bool has_room(const wire::Packet& packet) const {
        return bytes + packet.payload.size() + kOverhead <= kBytesMax;
    }
    // May throw, and keeps nothing then.
    void keep(const wire::Packet& packet, std::uint32_t packets);
    Kept take_kept();
    void drop_kept();
    void pop_piece();   // The oldest, which is in memory.
    void drop_piece();  // The youngest.
};

}  // namespace feroce::transport::rc
