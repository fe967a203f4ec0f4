// The messages that set up a path: the private data of a connection's request and answer, and the
// INFO exchange on the service connection. Little-endian; the layouts are the Linux kernel's RTRS
// 2.0. In bytes that the kernel sends as zero and does not read, two peers of ours announce the
// extension that makes failover safe (docs/sessions.md).
//
// parse() refuses with the errno that goes back to the peer and the reason for the log.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "rtrs/geometry.hpp"
#include "rtrs/uuid.hpp"

namespace feroce::rtrs {

inline constexpr std::uint16_t kMagic = 0x1bbd;
inline constexpr std::uint16_t kVersion = 0x0200;       // Peers compare the major byte only.
inline constexpr std::uint16_t kMaxConnections = 4096;  // Of one path.
inline constexpr std::size_t kMaxPaths = 128;           // Of one session.
inline constexpr std::size_t kMaxNameSize = 254;        // A NUL must follow in its 255 bytes.

// What both ends must announce before either uses it. Level 1: sequence numbers behind request
// headers, FENCE messages, several segments in one read. Level 2: notes behind responses (the text
// of an error, the length of a short read) and OVERDUE messages.
inline constexpr std::uint8_t kNoteLevel = 2;
inline constexpr std::uint8_t kExtensionLevel = 2;

enum class MessageType : std::uint16_t {
    InfoRequest = 0,
    InfoResponse = 1,
    Write = 2,
    Read = 3,
    KeyResponse = 4,
    FenceRequest = 0x80,  // Extension.
    FenceResponse = 0x81,
    Goodbye = 0x82,
    Refusal = 0x83,
    Overdue = 0x84,  // Level 2.
};

struct ConnectRequest {
    static constexpr std::size_t kSize = 56;

    std::uint16_t connection = 0;        // 0 is the service connection.
    std::uint16_t connection_count = 0;  // Of the path, the service connection among them.
    std::uint16_t reconnects = 0;        // 1 at the first connect; names an incarnation.
    Uuid path;
    Uuid session;
    bool may_create = false;     // This path may bring the session into being.
    std::uint8_t extension = 0;  // Level; 0 is the kernel.

    static Result<ConnectRequest> parse(ByteView data);  // May be longer: CM pads.
    void emit(std::span<std::byte, kSize> out) const;

    friend bool operator==(const ConnectRequest&, const ConnectRequest&) = default;
};

struct ConnectResponse {
    static constexpr std::size_t kSize = 56;

    int error = 0;  // A positive errno: this is a rejection and the rest is zero.
    Geometry geometry;
    bool new_keys = false;  // Every response brings a fresh key for its chunk.
    std::uint8_t extension = 0;
    std::uint64_t epoch = 0;  // Extension: random per session; another one: its memory is lost.

    static Result<ConnectResponse> parse(ByteView data);
    void emit(std::span<std::byte, kSize> out) const;

    friend bool operator==(const ConnectResponse&, const ConnectResponse&) = default;
};

Result<void> check_session_name(std::string_view name);

struct InfoRequest {
    static constexpr std::size_t kSize = 272;

    std::string name;

    static Result<InfoRequest> parse(ByteView data);
    void emit(std::span<std::byte, kSize> out) const;
};

// A run of chunks in the server's memory under one key.
struct ChunkRun {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t length = 0;

    friend bool operator==(const ChunkRun&, const ChunkRun&) = default;
};

// Where a client writes its request for one chunk.
struct RemoteChunk {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
};

struct InfoResponse {
    static constexpr std::size_t kHeaderSize = 8;
    static constexpr std::size_t kRunSize = 16;

    std::vector<ChunkRun> runs;

    std::size_t size() const { return kHeaderSize + kRunSize * runs.size(); }
    static std::size_t max_size(const Geometry& g) {
        return kHeaderSize + kRunSize * g.queue_depth;
    }
    static Result<InfoResponse> parse(ByteView data);
    void emit(ByteSpan out) const;  // size() bytes.

    // One entry per chunk, if the runs cover the chunks exactly as the geometry says.
    Result<std::vector<RemoteChunk>> chunks(const Geometry& geometry) const;
};

// Extension: "the incarnation `reconnects` of `path` is dead to me". Answered, with the same
// content, once nothing that still travels through it can touch a chunk any more.
struct Fence {
    static constexpr std::size_t kSize = 24;

    Uuid path;
    std::uint16_t reconnects = 0;
    // Answer only when the requests that came through closed paths have ended as well: the client
    // has given some up and wants to use their chunks for others. Of all closed paths: a request
    // that was repeated through this one may have arrived through an earlier one only.
    bool drain = false;

    // `type` is FenceRequest or FenceResponse.
    static Result<Fence> parse(ByteView data, MessageType type);
    void emit(std::span<std::byte, kSize> out, MessageType type) const;

    friend bool operator==(const Fence&, const Fence&) = default;
};

// Extension: the client closes the session; nothing of it needs to be remembered when its paths are
// gone.
struct Goodbye {
    static constexpr std::size_t kSize = 8;

    static bool is(ByteView data);
    static void emit(std::span<std::byte, kSize> out);
};

// Extension: the answer to INFO where the session or path is not taken. The connection is closed
// after it.
struct Refusal {
    static constexpr std::size_t kHeaderSize = 4;
    static constexpr std::size_t kMaxText = 240;

    int error = 0;  // A positive errno.
    std::string text;

    static Result<Refusal> parse(ByteView data);
    std::size_t emit(ByteSpan out) const;  // The text is cut to what there is room for.
};

// Level 2: the handler has not answered in time. The request is over for its caller and will get
// no data; its chunk is free when the response comes, as always.
struct Overdue {
    static constexpr std::size_t kSize = 16;

    std::uint16_t chunk = 0;
    std::uint64_t sequence = 0;  // Of the request: the chunk may have a newer one by now.

    static Result<Overdue> parse(ByteView data);
    void emit(std::span<std::byte, kSize> out) const;

    friend bool operator==(const Overdue&, const Overdue&) = default;
};

// Level 2: what a response carries beside its immediate, behind the key if there is one. With an
// error its text, else how many bytes of a read are the handler's.
inline constexpr std::size_t kMaxNote = 120;
std::string note_text(ByteView note);  // It is shown to people: only what can be printed.

// The fresh key of a chunk in always-invalidate mode; comes with each response.
struct KeyResponse {
    static constexpr std::size_t kSize = 8;

    std::uint16_t chunk = 0;
    std::uint32_t key = 0;

    static Result<KeyResponse> parse(ByteView data);
    void emit(std::span<std::byte, kSize> out) const;

    friend bool operator==(const KeyResponse&, const KeyResponse&) = default;
};

// The type in a message's first two bytes.
Result<MessageType> message_type(ByteView data);

// Whether incarnation `a` of a path is newer than `b`: the counter wraps.
constexpr bool newer_incarnation(std::uint16_t a, std::uint16_t b) {
    return static_cast<std::int16_t>(static_cast<std::uint16_t>(a - b)) > 0;
}

}  // namespace feroce::rtrs
