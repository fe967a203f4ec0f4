// GatherAhead: what send requests have in far memory, brought into staging before it is sent. Made
// by a queue pair that meets the first such request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/bytes.hpp"
#include "transport/copies.hpp"

namespace feroce::transport {

class GatherAhead {
public:
    // What is gathered before it is sent: as much as hides a copy behind what is sent meanwhile,
    // also of short messages, each of which is a piece.
    static constexpr std::size_t kAheadBytes = 1024 * 1024;
    static constexpr std::size_t kAheadPieces = 16;

    // Begins copies for what is sent next, from this byte of this request on, and forgets what lies
    // before it. May throw std::bad_alloc.
    void plan(QueuePair& qp, std::uint64_t index, std::uint64_t offset);
    // The bytes of a packet of that request. Far: some are still to come.
    mem::Fault fill(std::uint64_t index, std::uint64_t offset, ByteSpan into) const;

private:
    // A part of a request's message, on its way from memory.
    struct Source {
        std::uint64_t index = 0;   // Of the request.
        std::uint64_t offset = 0;  // A multiple of kPieceBytes.
        std::uint32_t size = 0;
        CopyGroupPtr group;                   // Null if it could not be started.
        mem::Fault fault = mem::Fault::None;  // Why.

        bool has(std::uint64_t of, std::uint64_t byte) const {
            return index == of && offset <= byte && byte < offset + size;
        }
        bool is_over() const { return group == nullptr || group->is_over(); }
    };
    void begin(QueuePair& qp, std::uint64_t index, std::uint64_t offset);
    void forget_first();

    std::deque<Source> sources_;  // In the order of sending.
    std::size_t bytes_ = 0;       // Of all of them.
};

}  // namespace feroce::transport
