// Captures of both forms, piece by piece: pcapng, and the older pcap in either byte order, with
// microseconds or nanoseconds. Memory is bounded by the longest frame, however long the file is.
// Every length in it is a stranger's word.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "wire/pcapng.hpp"

namespace feroce::wire {

class CaptureReader {
public:
    // Fills a piece of memory from its front and returns how much; 0 is the end.
    using Source = std::function<std::size_t(ByteSpan)>;

    explicit CaptureReader(Source source) : source_(std::move(source)) {}

    // The next frame, valid until the next call; nothing at the end or at the first thing that
    // makes no sense.
    std::optional<CapturedFrame> next();

    enum class Kind : std::uint8_t { Unread, Empty, Other, Gzip, Pcap, Pcapng };
    Kind kind() const { return kind_; }        // Of the file; known after the first next().
    bool damaged() const { return damaged_; }  // It ends, or errs, inside of something.
    bool is_capture() const;                   // As far as it was read.

private:
    // Longer than any frame or block that a capture needs.
    static constexpr std::size_t kPieceMax = std::size_t{1} << 24;

    bool fill(std::size_t wanted);  // Makes piece_ so long, from the source.
    bool skip(std::uint64_t bytes);
    void find_kind();
    std::uint32_t u32(std::size_t offset) const;
    std::optional<CapturedFrame> next_of_pcap();
    std::optional<CapturedFrame> next_of_pcapng();
    bool next_block();

    Source source_;
    Kind kind_ = Kind::Unread;
    bool damaged_ = false;
    bool big_endian_ = false;
    std::vector<std::byte> piece_;
    LinkType link_ = LinkType::Ethernet;  // The three of a pcap file.
    std::uint32_t units_per_second_ = 1'000'000;
    std::size_t record_header_ = 16;
    PcapngReader blocks_{{}};
};

}  // namespace feroce::wire
