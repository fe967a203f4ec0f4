#include "wire/capture_reader.hpp"

#include <algorithm>
#include <array>
#include <chrono>

#include "wire/pcapng_blocks.hpp"

namespace feroce::wire {

namespace {

constexpr std::uint32_t kPcapMicroseconds = 0xa1b2'c3d4;
constexpr std::uint32_t kPcapNanoseconds = 0xa1b2'3c4d;
constexpr std::uint32_t kPcapLongRecords = 0xa1b2'cd34;  // Of an old patched libpcap.
constexpr std::size_t kPcapHeader = 24;
constexpr std::size_t kLongRecordHeader = 24;
constexpr std::size_t kBlockHead = 12;  // Type, length, and of a section its byte order.

bool is_pcap(std::uint32_t magic) {
    return magic == kPcapMicroseconds || magic == kPcapNanoseconds || magic == kPcapLongRecords;
}

}  // namespace

std::uint32_t CaptureReader::u32(std::size_t offset) const {
    const auto bytes = std::span(piece_).subspan(offset).first<4>();
    return big_endian_ ? load_be32(bytes) : load_le32(bytes);
}

bool CaptureReader::fill(std::size_t wanted) {
    while (piece_.size() < wanted) {
        const std::size_t had = piece_.size();
        // What a length in the file promises is not taken before it is there.
        piece_.resize(std::min(wanted, had + (std::size_t{1} << 16)));
        const std::size_t got = source_(ByteSpan(piece_).subspan(had));
        piece_.resize(had + got);
        if (got == 0) return false;
    }
    return true;
}

bool CaptureReader::skip(std::uint64_t bytes) {
    std::array<std::byte, 4096> unused;
    while (bytes > 0) {
        const auto step = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, unused.size()));
        const std::size_t got = source_(ByteSpan(unused).first(step));
        if (got == 0) return false;
        bytes -= got;
    }
    return true;
}

bool CaptureReader::is_capture() const {
    return kind_ == Kind::Pcap || (kind_ == Kind::Pcapng && (!damaged_ || blocks_.is_capture()));
}

void CaptureReader::find_kind() {
    const bool whole = fill(4);
    kind_ = piece_.empty() ? Kind::Empty : Kind::Other;
    damaged_ = !piece_.empty();
    if (!whole) return;
    for (const bool big : {false, true}) {
        big_endian_ = big;
        const std::uint32_t magic = u32(0);
        if (magic == kSectionBlock) {
            kind_ = Kind::Pcapng;
            damaged_ = false;
            return;
        }
        if (!is_pcap(magic) || !fill(kPcapHeader)) continue;
        kind_ = Kind::Pcap;
        damaged_ = false;
        if (magic == kPcapNanoseconds) units_per_second_ = 1'000'000'000;
        if (magic == kPcapLongRecords) record_header_ = kLongRecordHeader;
        link_ = static_cast<LinkType>(u32(20) & 0xffff);  // Above it: about the frame checksum.
        piece_.clear();
        return;
    }
    if (byte_at(piece_, 0) == 0x1f && byte_at(piece_, 1) == 0x8b) kind_ = Kind::Gzip;
}

std::optional<CapturedFrame> CaptureReader::next_of_pcap() {
    piece_.clear();
    if (!fill(record_header_)) {
        damaged_ = !piece_.empty();
        return std::nullopt;
    }
    const std::size_t captured = u32(8);
    damaged_ = captured > kPieceMax || !fill(record_header_ + captured);
    if (damaged_) return std::nullopt;
    const std::uint64_t fraction = std::uint64_t{u32(4)} * (1'000'000'000 / units_per_second_);
    return CapturedFrame{
        .since_epoch = std::chrono::seconds(u32(0)) + Duration(static_cast<std::int64_t>(fraction)),
        .link = link_,
        .bytes = ByteView(piece_).subspan(record_header_, captured),
        .original_size = u32(12)};
}

// A whole block in piece_; one that is too long to be a frame is passed over.
bool CaptureReader::next_block() {
    while (true) {
        if (!fill(kBlockHead)) {
            damaged_ = !piece_.empty();
            return false;
        }
        if (load_be32(std::span(piece_).first<4>()) == kSectionBlock)
            big_endian_ = load_be32(std::span(piece_).subspan<8, 4>()) == kByteOrderMagic;
        const std::uint32_t length = u32(4);
        damaged_ = length < kBlockHead || length % 4 != 0;
        if (damaged_) return false;
        if (length <= kPieceMax) {
            damaged_ = !fill(length);
            return !damaged_;
        }
        damaged_ = !skip(length - kBlockHead);
        if (damaged_) return false;
        piece_.clear();
    }
}

std::optional<CapturedFrame> CaptureReader::next_of_pcapng() {
    while (next_block()) {
        blocks_.go_on_with(piece_);
        const std::optional<CapturedFrame> frame = blocks_.next();
        damaged_ = blocks_.damaged();
        if (frame || damaged_) return frame;
        piece_.clear();
    }
    return std::nullopt;
}

std::optional<CapturedFrame> CaptureReader::next() {
    if (kind_ == Kind::Unread)
        find_kind();  // Of a pcapng file, what it read begins the first block.
    else
        piece_.clear();
    if (damaged_ || (kind_ != Kind::Pcap && kind_ != Kind::Pcapng)) return std::nullopt;
    return kind_ == Kind::Pcap ? next_of_pcap() : next_of_pcapng();
}

}  // namespace feroce::wire
