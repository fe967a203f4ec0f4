// The header that ends every request in its chunk: data, user message, header. A write's header is
// four bytes; a read's says where the server shall put what it read. Between peers of ours eight
// bytes follow either: the request's sequence number, by which the server knows a request that it
// has seen before through a path that failed.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "feroce/rtrs/request.hpp"
#include "rtrs/geometry.hpp"

namespace feroce::rtrs {

// Memory of the client that the server may write. Not cleared when made: a header has room for many
// and most name one.
struct RemoteSegment {
    std::uint64_t address;
    std::uint32_t key;
    std::uint32_t length;

    friend bool operator==(const RemoteSegment&, const RemoteSegment&) = default;
};

// How many segments a read may name: the kernel takes one.
inline constexpr std::size_t kMaxReadSegments = 16;
inline constexpr std::size_t kMaxKernelReadSegments = 1;
inline constexpr std::uint64_t kNoSequence = 0;  // Of requests from and to the kernel.

struct RequestHeader {
    static constexpr std::size_t kWriteSize = 4;
    static constexpr std::size_t kReadSize = 8;
    static constexpr std::size_t kSegmentSize = 16;
    static constexpr std::size_t kSequenceSize = 8;
    static constexpr std::size_t kMaxSize =
        kReadSize + kSegmentSize * kMaxReadSegments + kSequenceSize;

    Direction direction = Direction::Write;
    std::uint16_t message_size = 0;
    bool need_invalidate = false;          // Reads: the key of segment 0 ends with the response.
    std::uint16_t segment_count = 0;       // Reads only.
    std::uint64_t sequence = kNoSequence;  // kNoSequence: none on the wire.
    // Last, and valid up to segment_count: of most headers one cache line is touched.
    std::array<RemoteSegment, kMaxReadSegments> segments;

    // Of one with so many segments.
    static constexpr std::size_t size_of(Direction direction, std::size_t segments, bool sequence) {
        const std::size_t base =
            direction == Direction::Write ? kWriteSize : kReadSize + kSegmentSize * segments;
        return base + (sequence ? kSequenceSize : 0);
    }
    std::size_t size() const { return size_of(direction, segment_count, sequence != kNoSequence); }
    void emit(ByteSpan out) const;  // size() bytes.

    // Copies a header from the bytes of a chunk from its offset on: each once, since anyone may
    // write them again, and no more of them than the header has, since what lies behind it is in
    // nobody's cache. The part of `into` that is filled.
    static ByteView copy(ByteView from, std::span<std::byte, kMaxSize> into);
    // `at`: such a copy of the bytes of a chunk from `offset` on.
    // `extended`: a sequence number follows.
    static Result<RequestHeader> parse(ByteView at, std::uint32_t offset, bool extended);
    // Into a fresh one: it may be large, and is not copied then.
    static Result<void> parse(ByteView at, std::uint32_t offset, bool extended,
                              RequestHeader& header);

    // What this one has, over another. An assignment would copy all there is room for.
    void copy_to(RequestHeader& other) const;

    friend bool operator==(const RequestHeader& left, const RequestHeader& right);
};

}  // namespace feroce::rtrs
