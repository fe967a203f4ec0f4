// See messages.hpp. Offsets are those of the kernel's structures.
#include "block/messages.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace feroce::block {

namespace {

constexpr std::uint32_t kKindMask = 0xff;
constexpr std::uint32_t kSync = 1u << 8;
constexpr std::uint32_t kFua = 1u << 9;
constexpr std::uint32_t kPreflush = 1u << 10;
constexpr std::uint32_t kNoUnmap = 1u << 11;
constexpr std::uint8_t kCacheFua = 1;
constexpr std::uint8_t kCacheVolatile = 2;
constexpr std::uint32_t kMaxBlock = 32768;  // The largest power of two in 16 bits.

Result<void> check(ByteView data, std::size_t size, MessageType type, const char* why) {
    const auto found = message_type(data);
    if (!found || *found != type || data.size() < size) return Error{EINVAL, why};
    return {};
}

void begin(ByteSpan out, MessageType type) {
    std::fill(out.begin(), out.end(), std::byte{0});
    store_le16(out.first<2>(), static_cast<std::uint16_t>(type));
}

bool is_block_size(std::uint32_t size) {
    return std::has_single_bit(size) && size >= kSectorSize && size <= kMaxBlock;
}

}  // namespace

Result<MessageType> message_type(ByteView data) {
    if (data.size() < 4) return Error{EINVAL, "a message is shorter than its header"};
    return static_cast<MessageType>(load_le16(data.first<2>()));
}

Grant Grant::parse_behind(ByteView data, std::size_t size) {
    if (data.size() < size + kSize) return {};
    const ByteView at = data.subspan(size);
    return {load_le32(at.first<4>()), load_le64(at.subspan<8, 8>()),
            load_le64(at.subspan<16, 8>())};
}

void Grant::emit(std::span<std::byte, kSize> out) const {
    std::fill(out.begin(), out.end(), std::byte{0});
    store_le32(out.first<4>(), handle);
    store_le64(out.subspan<8, 8>(), store);
    store_le64(out.subspan<16, 8>(), generation);
}

Result<SessionInfo> SessionInfo::parse(ByteView data, MessageType type) {
    TRY(check(data, kSize, type, "this is no SESS_INFO of RNBD"));
    const SessionInfo info{load_u8(data.subspan<4, 1>())};
    if (info.version == 0) return Error{EINVAL, "the peer speaks no version of RNBD"};
    return info;
}

void SessionInfo::emit(std::span<std::byte, kSize> out, MessageType type) const {
    begin(out, type);
    store_u8(out.subspan<4, 1>(), version);
}

Result<OpenRequest> OpenRequest::parse(ByteView data) {
    TRY(check(data, kSize, MessageType::Open, "this is no OPEN of RNBD"));
    const std::uint8_t access = load_u8(data.subspan<4, 1>());
    if (access > static_cast<std::uint8_t>(AccessMode::Migration))
        return Error{EINVAL, "the access mode is none of ro, rw and migration"};
    const ByteView field = data.subspan(6, kMaxNameSize + 1);
    const auto end = std::find(field.begin(), field.end(), std::byte{0});
    if (end == field.end()) return Error{EINVAL, "the disk's name has no end"};
    OpenRequest request{static_cast<AccessMode>(access), {}};
    for (auto at = field.begin(); at != end; ++at) request.name += static_cast<char>(*at);
    if (request.name.empty()) return Error{EINVAL, "the disk's name is empty"};
    if (request.name.find("..") != std::string::npos)
        return Error{EINVAL, "the disk's name must not contain '..'"};
    return request;
}

void OpenRequest::emit(std::span<std::byte, kSize> out) const {
    ASSERT(name.size() <= kMaxNameSize);
    begin(out, MessageType::Open);
    store_u8(out.subspan<4, 1>(), static_cast<std::uint8_t>(access));
    const ByteView from = std::as_bytes(std::span(name));
    std::copy(from.begin(), from.end(), out.begin() + 6);
}

Result<OpenResponse> OpenResponse::parse(ByteView data) {
    TRY(check(data, kSize, MessageType::OpenResponse, "the server's answer is no OPEN_RSP"));
    OpenResponse response;
    response.device = load_le32(data.subspan<4, 4>());
    response.sectors = load_le64(data.subspan<8, 8>());
    response.max_io_sectors = load_le32(data.subspan<16, 4>());
    response.max_zeroes_sectors = load_le32(data.subspan<20, 4>());
    response.max_discard_sectors = load_le32(data.subspan<24, 4>());
    response.discard_granularity = load_le32(data.subspan<28, 4>());
    response.discard_alignment = load_le32(data.subspan<32, 4>());
    response.physical_block = load_le16(data.subspan<36, 2>());
    response.logical_block = load_le16(data.subspan<38, 2>());
    response.max_segments = load_le16(data.subspan<40, 2>());
    response.secure_erase = load_le16(data.subspan<42, 2>()) != 0;
    response.rotational = load_u8(data.subspan<44, 1>()) != 0;
    const std::uint8_t cache = load_u8(data.subspan<45, 1>());
    response.fua = (cache & kCacheFua) != 0;
    response.volatile_cache = (cache & kCacheVolatile) != 0;
    response.cache_identity = load_le64(data.subspan<48, 8>());
    if (!is_block_size(response.logical_block))
        return Error{EPROTO, "the disk's block size is none (a power of two from 512)"};
    if (response.sectors > UINT64_MAX / kSectorSize)
        return Error{EPROTO, "the disk is larger than 64 bits can tell"};
    return response;
}

void OpenResponse::emit(std::span<std::byte, kSize> out) const {
    begin(out, MessageType::OpenResponse);
    store_le32(out.subspan<4, 4>(), device);
    store_le64(out.subspan<8, 8>(), sectors);
    store_le32(out.subspan<16, 4>(), max_io_sectors);
    store_le32(out.subspan<20, 4>(), max_zeroes_sectors);
    store_le32(out.subspan<24, 4>(), max_discard_sectors);
    store_le32(out.subspan<28, 4>(), discard_granularity);
    store_le32(out.subspan<32, 4>(), discard_alignment);
    store_le16(out.subspan<36, 2>(), physical_block);
    store_le16(out.subspan<38, 2>(), logical_block);
    store_le16(out.subspan<40, 2>(), max_segments);
    store_le16(out.subspan<42, 2>(), secure_erase ? 1 : 0);
    store_u8(out.subspan<44, 1>(), rotational ? 1 : 0);
    store_u8(
        out.subspan<45, 1>(),
        static_cast<std::uint8_t>((fua ? kCacheFua : 0) | (volatile_cache ? kCacheVolatile : 0)));
    store_le64(out.subspan<48, 8>(), cache_identity);
}

Result<CloseRequest> CloseRequest::parse(ByteView data) {
    TRY(check(data, kSize, MessageType::Close, "this is no CLOSE of RNBD"));
    return CloseRequest{load_le32(data.subspan<4, 4>())};
}

void CloseRequest::emit(std::span<std::byte, kSize> out) const {
    begin(out, MessageType::Close);
    store_le32(out.subspan<4, 4>(), device);
}

Result<IoRequest> IoRequest::parse(ByteView data) {
    TRY(check(data, kOldSize, MessageType::Io, "this is no IO of RNBD"));
    IoRequest request;
    request.device = load_le32(data.subspan<4, 4>());
    request.sector = load_le64(data.subspan<8, 8>());
    const std::uint32_t what = load_le32(data.subspan<16, 4>());
    request.size = load_le32(data.subspan<20, 4>());
    if (data.size() >= kUsedSize) request.priority = load_le16(data.subspan<24, 2>());
    if ((what & kKindMask) > static_cast<std::uint32_t>(IoKind::WriteZeroes))
        return Error{EOPNOTSUPP, "this kind of I/O is not known"};
    request.kind = static_cast<IoKind>(what & kKindMask);
    request.sync = (what & kSync) != 0;
    request.fua = (what & kFua) != 0;
    request.preflush = (what & kPreflush) != 0;
    request.no_unmap = (what & kNoUnmap) != 0;
    return request;
}

void IoRequest::emit(std::span<std::byte, kSize> out) const {
    begin(out, MessageType::Io);
    store_le32(out.subspan<4, 4>(), device);
    store_le64(out.subspan<8, 8>(), sector);
    store_le32(out.subspan<16, 4>(), static_cast<std::uint32_t>(kind) | (sync ? kSync : 0) |
                                         (fua ? kFua : 0) | (preflush ? kPreflush : 0) |
                                         (no_unmap ? kNoUnmap : 0));
    store_le32(out.subspan<20, 4>(), size);
    store_le16(out.subspan<24, 2>(), priority);
}

}  // namespace feroce::block
