// See handshake.hpp. Offsets are those of the kernel's structures.
#include "rtrs/handshake.hpp"

#include <algorithm>
#include <cstring>

namespace feroce::rtrs {

namespace {

constexpr std::uint32_t kNewKeysFlag = 2;
constexpr std::uint32_t kDrainFlag = 1;
constexpr std::array<std::byte, 4> kExtensionMark{std::byte{'F'}, std::byte{'E'}, std::byte{'R'},
                                                  std::byte{'O'}};
constexpr std::size_t kNameFieldSize = kMaxNameSize + 1;

// The level that a peer announces at the start of its reserved bytes; 0 if it is not one of ours.
std::uint8_t extension_level(ByteView reserved) {
    if (!std::equal(kExtensionMark.begin(), kExtensionMark.end(), reserved.begin())) return 0;
    return load_u8(reserved.subspan<4, 1>());
}

void announce_extension(ByteSpan reserved, std::uint8_t level) {
    if (level == 0) return;
    std::copy(kExtensionMark.begin(), kExtensionMark.end(), reserved.begin());
    store_u8(reserved.subspan<4, 1>(), level);
}

Uuid load_uuid(std::span<const std::byte, 16> from) {
    Uuid uuid;
    std::copy(from.begin(), from.end(), uuid.bytes.begin());
    return uuid;
}

Result<void> check_magic(ByteView magic_and_version) {
    if (load_le16(magic_and_version.subspan<0, 2>()) != kMagic)
        return Error{ECONNRESET, "the private data is not RTRS (wrong magic number)"};
    if (load_le16(magic_and_version.subspan<2, 2>()) >> 8 != kVersion >> 8)
        return Error{ECONNRESET, "the peer speaks another major version of RTRS than 2"};
    return {};
}

Result<void> check_type(ByteView data, std::size_t size, MessageType expected, const char* why) {
    const auto type = message_type(data);
    if (!type || *type != expected || data.size() < size) return Error{EPROTO, why};
    return {};
}

}  // namespace

Result<ConnectRequest> ConnectRequest::parse(ByteView data) {
    if (data.size() < kSize)
        return Error{ECONNRESET, "the connect request's private data is too short for RTRS"};
    TRY(check_magic(data.subspan(2, 4)));
    ConnectRequest request;
    request.connection = load_le16(data.subspan<6, 2>());
    request.connection_count = load_le16(data.subspan<8, 2>());
    request.reconnects = load_le16(data.subspan<10, 2>());
    request.path = load_uuid(data.subspan<12, 16>());
    request.session = load_uuid(data.subspan<28, 16>());
    request.may_create = (load_u8(data.subspan<44, 1>()) & 1) != 0;
    request.extension = extension_level(data.subspan(45, 11));
    if (request.connection_count > kMaxConnections)
        return Error{ECONNRESET, "the path asks for more than 4096 connections"};
    if (request.connection >= request.connection_count)
        return Error{ECONNRESET, "the connection's number is not below their count"};
    return request;
}

void ConnectRequest::emit(std::span<std::byte, kSize> out) const {
    std::fill(out.begin(), out.end(), std::byte{0});
    store_le16(out.subspan<2, 2>(), kMagic);
    store_le16(out.subspan<4, 2>(), kVersion);
    store_le16(out.subspan<6, 2>(), connection);
    store_le16(out.subspan<8, 2>(), connection_count);
    store_le16(out.subspan<10, 2>(), reconnects);
    std::copy(path.bytes.begin(), path.bytes.end(), out.begin() + 12);
    std::copy(session.bytes.begin(), session.bytes.end(), out.begin() + 28);
    store_u8(out.subspan<44, 1>(), may_create ? 1 : 0);
    announce_extension(out.subspan(45, 11), extension);
}

Result<ConnectResponse> ConnectResponse::parse(ByteView data) {
    if (data.size() < kSize)
        return Error{ECONNRESET, "the connect response's private data is too short for RTRS"};
    TRY(check_magic(data.first(4)));
    ConnectResponse response;
    response.error = -static_cast<std::int16_t>(load_le16(data.subspan<4, 2>()));
    if (response.error < 0) response.error = ECONNRESET;
    if (response.error != 0) return response;  // The rest of a rejection means nothing.
    response.geometry.queue_depth = load_le16(data.subspan<6, 2>());
    response.geometry.max_io_size = load_le32(data.subspan<8, 4>());
    response.geometry.max_header_size = load_le32(data.subspan<12, 4>());
    response.new_keys = (load_le32(data.subspan<16, 4>()) & kNewKeysFlag) != 0;
    response.extension = extension_level(data.subspan(20, 36));
    if (response.extension != 0) response.epoch = load_le64(data.subspan<28, 8>());
    TRY(response.geometry.check());
    return response;
}

void ConnectResponse::emit(std::span<std::byte, kSize> out) const {
    std::fill(out.begin(), out.end(), std::byte{0});
    store_le16(out.subspan<0, 2>(), kMagic);
    store_le16(out.subspan<2, 2>(), kVersion);
    store_le16(out.subspan<4, 2>(), static_cast<std::uint16_t>(-error));
    if (error != 0) return;
    store_le16(out.subspan<6, 2>(), geometry.queue_depth);
    store_le32(out.subspan<8, 4>(), geometry.max_io_size);
    store_le32(out.subspan<12, 4>(), geometry.max_header_size);
    // Kernels 5.8 to 5.11 compare the whole word: no other bit may ever be set.
    store_le32(out.subspan<16, 4>(), new_keys ? kNewKeysFlag : 0);
    announce_extension(out.subspan(20, 36), extension);
    if (extension != 0) store_le64(out.subspan<28, 8>(), epoch);
}

Result<void> check_session_name(std::string_view name) {
    if (name.empty() || name.size() > kMaxNameSize)
        return Error{EINVAL, "a session's name has 1 to 254 characters"};
    if (name.find_first_of("/.") != std::string_view::npos ||
        name.find('\0') != std::string_view::npos)
        return Error{EINVAL, "a session's name must not contain '/' or '.'"};
    return {};
}

Result<InfoRequest> InfoRequest::parse(ByteView data) {
    TRY(check_type(data, kSize, MessageType::InfoRequest, "this is not an INFO request"));
    const ByteView field = data.subspan(2, kNameFieldSize);
    const auto end = std::find(field.begin(), field.end(), std::byte{0});
    if (end == field.end()) return Error{EPROTO, "the session's name has no end"};
    InfoRequest request;
    for (auto at = field.begin(); at != end; ++at) request.name += static_cast<char>(*at);
    TRY(check_session_name(request.name));
    return request;
}

void InfoRequest::emit(std::span<std::byte, kSize> out) const {
    ASSERT(name.size() <= kMaxNameSize);
    std::fill(out.begin(), out.end(), std::byte{0});
    store_le16(out.subspan<0, 2>(), static_cast<std::uint16_t>(MessageType::InfoRequest));
    const ByteView from = std::as_bytes(std::span(name));
    std::copy(from.begin(), from.end(), out.begin() + 2);
}

Result<InfoResponse> InfoResponse::parse(ByteView data) {
    TRY(check_type(data, kHeaderSize, MessageType::InfoResponse, "this is not an INFO response"));
    const std::size_t count = load_le16(data.subspan<2, 2>());
    if (data.size() < kHeaderSize + kRunSize * count)
        return Error{EPROTO, "an INFO response is shorter than its descriptors"};
    InfoResponse response;
    response.runs.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        const ByteView at = data.subspan(kHeaderSize + kRunSize * i, kRunSize);
        response.runs.push_back({load_le64(at.subspan<0, 8>()), load_le32(at.subspan<8, 4>()),
                                 load_le32(at.subspan<12, 4>())});
    }
    return response;
}

void InfoResponse::emit(ByteSpan out) const {
    ASSERT(out.size() >= size());
    store_le16(out.subspan<0, 2>(), static_cast<std::uint16_t>(MessageType::InfoResponse));
    store_le16(out.subspan<2, 2>(), static_cast<std::uint16_t>(runs.size()));
    store_le32(out.subspan<4, 4>(), 0);
    ByteSpan rest = out.subspan(kHeaderSize);
    for (const ChunkRun& run : runs) {
        store_le64(rest.subspan<0, 8>(), run.address);
        store_le32(rest.subspan<8, 4>(), run.key);
        store_le32(rest.subspan<12, 4>(), run.length);
        rest = rest.subspan(kRunSize);
    }
}

Result<std::vector<RemoteChunk>> InfoResponse::chunks(const Geometry& geometry) const {
    if (runs.empty() || geometry.queue_depth % runs.size() != 0)
        return Error{EPROTO, "the server's chunks do not divide among its descriptors"};
    std::vector<RemoteChunk> chunks;
    chunks.reserve(geometry.queue_depth);
    for (const ChunkRun& run : runs) {
        const std::uint64_t count = run.length / geometry.chunk_size();
        if (count == 0 || run.length % geometry.chunk_size() != 0)
            return Error{EPROTO, "a descriptor of the server is not a whole number of chunks"};
        if (run.address > UINT64_MAX - run.length)
            return Error{EPROTO, "a descriptor of the server wraps around"};
        if (chunks.size() + count > geometry.queue_depth)
            return Error{EPROTO, "the server describes more chunks than it announced"};
        for (std::uint64_t i = 0; i < count; ++i)
            chunks.push_back({run.address + i * geometry.chunk_size(), run.key});
    }
    if (chunks.size() != geometry.queue_depth)
        return Error{EPROTO, "the server describes fewer chunks than it announced"};
    return chunks;
}

Result<Fence> Fence::parse(ByteView data, MessageType type) {
    TRY(check_type(data, kSize, type, "this is not a FENCE message"));
    return Fence{load_uuid(data.subspan<8, 16>()), load_le16(data.subspan<2, 2>()),
                 (load_le32(data.subspan<4, 4>()) & kDrainFlag) != 0};
}

void Fence::emit(std::span<std::byte, kSize> out, MessageType type) const {
    store_le16(out.subspan<0, 2>(), static_cast<std::uint16_t>(type));
    store_le16(out.subspan<2, 2>(), reconnects);
    store_le32(out.subspan<4, 4>(), drain ? kDrainFlag : 0);
    std::copy(path.bytes.begin(), path.bytes.end(), out.begin() + 8);
}

bool Goodbye::is(ByteView data) {
    return check_type(data, kSize, MessageType::Goodbye, "").has_value();
}

void Goodbye::emit(std::span<std::byte, kSize> out) {
    std::fill(out.begin(), out.end(), std::byte{0});
    store_le16(out.first<2>(), static_cast<std::uint16_t>(MessageType::Goodbye));
}

Result<Refusal> Refusal::parse(ByteView data) {
    TRY(check_type(data, kHeaderSize, MessageType::Refusal, "this is not a refusal"));
    Refusal refusal;
    refusal.error = load_le16(data.subspan<2, 2>());
    if (refusal.error == 0) return Error{EPROTO, "a refusal names no error"};
    refusal.text =
        note_text(data.subspan(kHeaderSize).first(std::min(data.size() - kHeaderSize, kMaxText)));
    return refusal;
}

std::size_t Refusal::emit(ByteSpan out) const {
    store_le16(out.subspan<0, 2>(), static_cast<std::uint16_t>(MessageType::Refusal));
    store_le16(out.subspan<2, 2>(), static_cast<std::uint16_t>(error));
    const ByteView from = std::as_bytes(std::span(text));
    const std::size_t size = std::min({text.size(), kMaxText, out.size() - kHeaderSize});
    std::copy_n(from.begin(), size, out.begin() + kHeaderSize);
    return kHeaderSize + size;
}

Result<Overdue> Overdue::parse(ByteView data) {
    TRY(check_type(data, kSize, MessageType::Overdue, "this is not an OVERDUE message"));
    return Overdue{load_le16(data.subspan<2, 2>()), load_le64(data.subspan<8, 8>())};
}

void Overdue::emit(std::span<std::byte, kSize> out) const {
    std::fill(out.begin(), out.end(), std::byte{0});
    store_le16(out.subspan<0, 2>(), static_cast<std::uint16_t>(MessageType::Overdue));
    store_le16(out.subspan<2, 2>(), chunk);
    store_le64(out.subspan<8, 8>(), sequence);
}

std::string note_text(ByteView note) {
    std::string text;
    for (const std::byte byte : note) {
        const char c = static_cast<char>(byte);
        text += c >= ' ' && c <= '~' ? c : '?';
    }
    return text;
}

Result<KeyResponse> KeyResponse::parse(ByteView data) {
    TRY(check_type(data, kSize, MessageType::KeyResponse, "a response lacks its chunk's new key"));
    return KeyResponse{load_le16(data.subspan<2, 2>()), load_le32(data.subspan<4, 4>())};
}

void KeyResponse::emit(std::span<std::byte, kSize> out) const {
    store_le16(out.subspan<0, 2>(), static_cast<std::uint16_t>(MessageType::KeyResponse));
    store_le16(out.subspan<2, 2>(), chunk);
    store_le32(out.subspan<4, 4>(), key);
}

Result<MessageType> message_type(ByteView data) {
    if (data.size() < 2) return Error{EPROTO, "a message is shorter than its type"};
    return static_cast<MessageType>(load_le16(data.first<2>()));
}

}  // namespace feroce::rtrs
