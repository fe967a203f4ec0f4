// See request_header.hpp.
#include "rtrs/request_header.hpp"

#include <algorithm>

#include "rtrs/handshake.hpp"

namespace feroce::rtrs {

namespace {

constexpr std::uint16_t kNeedInvalidate = 1;
constexpr Error kCutShort{EPROTO, "a request's header does not fit into its chunk"};

Result<void> parse_read(ByteView at, std::size_t max_segments, RequestHeader& header) {
    if (at.size() < RequestHeader::kReadSize) return kCutShort;
    header.need_invalidate = (load_le16(at.subspan<4, 2>()) & kNeedInvalidate) != 0;
    header.segment_count = load_le16(at.subspan<6, 2>());
    if (header.segment_count > max_segments)
        return Error{EPROTO, "a read names more segments than the server takes"};
    if (at.size() < RequestHeader::kReadSize + RequestHeader::kSegmentSize * header.segment_count)
        return kCutShort;
    for (std::size_t i = 0; i < header.segment_count; ++i) {
        const ByteView from = at.subspan(RequestHeader::kReadSize + RequestHeader::kSegmentSize * i,
                                         RequestHeader::kSegmentSize);
        header.segments[i] = {load_le64(from.subspan<0, 8>()), load_le32(from.subspan<8, 4>()),
                              load_le32(from.subspan<12, 4>())};
    }
    return {};
}

// The server would send what lies behind the data: somebody else's, or the header.
Result<void> check_lengths(const RequestHeader& header, std::uint32_t data_size) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < header.segment_count; ++i) sum += header.segments[i].length;
    if (sum > data_size) return Error{EPROTO, "a read asks for more than its data's size"};
    return {};
}

}  // namespace

void RequestHeader::emit(ByteSpan out) const {
    ASSERT(out.size() >= size() && segment_count <= kMaxReadSegments);
    const auto type = direction == Direction::Write ? MessageType::Write : MessageType::Read;
    store_le16(out.subspan<0, 2>(), static_cast<std::uint16_t>(type));
    store_le16(out.subspan<2, 2>(), message_size);
    ByteSpan rest = out.subspan(kWriteSize);
    if (direction == Direction::Read) {
        store_le16(rest.subspan<0, 2>(), need_invalidate ? kNeedInvalidate : 0);
        store_le16(rest.subspan<2, 2>(), segment_count);
        rest = rest.subspan(kReadSize - kWriteSize);
        for (std::size_t i = 0; i < segment_count; ++i) {
            store_le64(rest.subspan<0, 8>(), segments[i].address);
            store_le32(rest.subspan<8, 4>(), segments[i].key);
            store_le32(rest.subspan<12, 4>(), segments[i].length);
            rest = rest.subspan(kSegmentSize);
        }
    }
    if (sequence != kNoSequence) store_le64(rest.first<8>(), sequence);
}

ByteView RequestHeader::copy(ByteView from, std::span<std::byte, kMaxSize> into) {
    // Of any write, and of reads into one segment.
    constexpr std::size_t kUsual = kReadSize + kSegmentSize + kSequenceSize;
    const std::size_t usual = std::min(from.size(), kUsual);
    std::copy_n(from.begin(), usual, into.begin());
    const ByteView seen = into.first(usual);
    if (usual < kUsual) return seen;
    const bool read = static_cast<MessageType>(load_le16(seen.first<2>())) == MessageType::Read;
    const std::size_t segments = read ? load_le16(seen.subspan<6, 2>()) : 0;
    if (segments <= 1) return seen;
    const std::size_t whole =
        std::min({from.size(), kMaxSize, kReadSize + kSegmentSize * segments + kSequenceSize});
    std::copy_n(from.begin() + usual, whole - usual, into.begin() + usual);
    return into.first(whole);
}

void RequestHeader::copy_to(RequestHeader& other) const {
    other.direction = direction;
    other.message_size = message_size;
    other.need_invalidate = need_invalidate;
    other.segment_count = segment_count;
    other.sequence = sequence;
    std::copy_n(segments.begin(), segment_count, other.segments.begin());
}

bool operator==(const RequestHeader& left, const RequestHeader& right) {
    const auto used = [](const RequestHeader& header) {
        return std::span(header.segments).first(header.segment_count);
    };
    return left.direction == right.direction && left.message_size == right.message_size &&
           left.need_invalidate == right.need_invalidate && left.sequence == right.sequence &&
           std::ranges::equal(used(left), used(right));
}

Result<RequestHeader> RequestHeader::parse(ByteView at, std::uint32_t offset, bool extended) {
    RequestHeader header;
    TRY(parse(at, offset, extended, header));
    return header;
}

Result<void> RequestHeader::parse(ByteView at, std::uint32_t offset, bool extended,
                                  RequestHeader& header) {
    if (at.size() < kWriteSize) return kCutShort;
    const auto type = static_cast<MessageType>(load_le16(at.subspan<0, 2>()));
    header.message_size = load_le16(at.subspan<2, 2>());
    if (header.message_size > offset)
        return Error{EPROTO, "a request's message is longer than what stands before its header"};
    if (type == MessageType::Read) {
        header.direction = Direction::Read;
        TRY(parse_read(at, extended ? kMaxReadSegments : kMaxKernelReadSegments, header));
        TRY(check_lengths(header, offset - header.message_size));
    } else if (type != MessageType::Write) {
        return Error{EPROTO, "a request is neither a read nor a write"};
    }
    if (!extended) return {};
    const ByteView behind = at.subspan(header.size());
    if (behind.size() < kSequenceSize) return kCutShort;
    header.sequence = load_le64(behind.first<8>());
    if (header.sequence == kNoSequence)
        return Error{EPROTO, "a request lacks the sequence number that was agreed on"};
    return {};
}

}  // namespace feroce::rtrs
