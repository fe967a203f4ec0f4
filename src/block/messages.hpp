// RNBD's messages as values. Little-endian; the layouts are the Linux kernel's (RNBD 2). Each is
// the user message of an RTRS request, or, for responses, the data of the read that asked.
//
// parse() refuses with the errno that goes back to the client. What a message lies in may change
// under the reader, so callers pass a private copy.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "feroce/block/types.hpp"

namespace feroce::block {

inline constexpr std::uint8_t kVersion = 2;          // Major; minors do not travel.
inline constexpr std::size_t kMaxNameSize = 254;     // A NUL must follow in its 255 bytes.
inline constexpr std::size_t kMaxMessageSize = 288;  // Of requests.

enum class MessageType : std::uint16_t {
    SessionInfo = 0,
    SessionInfoResponse = 1,
    Open = 2,
    OpenResponse = 3,
    Io = 4,
    Close = 5,
};

Result<MessageType> message_type(ByteView data);

// Either way: the version that each end speaks.
struct SessionInfo {
    static constexpr std::size_t kSize = 36;

    std::uint8_t version = kVersion;

    // `type` is SessionInfo or SessionInfoResponse.
    static Result<SessionInfo> parse(ByteView data, MessageType type);
    void emit(std::span<std::byte, kSize> out, MessageType type) const;

    friend bool operator==(const SessionInfo&, const SessionInfo&) = default;
};

// What peers of ours add behind the kernel's messages (docs/adr/0018). A message without it means
// the same as one that has zeroes there.
struct Grant {
    static constexpr std::size_t kSize = 24;

    std::uint32_t handle = 0;  // Of an opened disk, unique in its session; 0: the kernel's.
    std::uint64_t store = 0;   // What the handle was granted; 0: nothing yet.
    std::uint64_t generation = 0;

    // What follows the first `size` bytes of a message, if it is there.
    static Grant parse_behind(ByteView data, std::size_t size);
    void emit(std::span<std::byte, kSize> out) const;

    friend bool operator==(const Grant&, const Grant&) = default;
};

struct OpenRequest {
    static constexpr std::size_t kSize = 264;

    AccessMode access = AccessMode::ReadWrite;
    std::string name;

    static Result<OpenRequest> parse(ByteView data);
    void emit(std::span<std::byte, kSize> out) const;

    friend bool operator==(const OpenRequest&, const OpenRequest&) = default;
};

struct OpenResponse {
    static constexpr std::size_t kSize = 56;

    std::uint32_t device = 0;
    std::uint64_t sectors = 0;
    std::uint32_t max_io_sectors = 0;
    std::uint32_t max_zeroes_sectors = 0;
    std::uint32_t max_discard_sectors = 0;
    std::uint32_t discard_granularity = 0;
    std::uint32_t discard_alignment = 0;
    std::uint16_t physical_block = 0;
    std::uint16_t logical_block = 0;
    std::uint16_t max_segments = 0;
    bool secure_erase = false;
    bool rotational = false;
    bool fua = false;
    bool volatile_cache = false;
    // In bytes that the kernel sends as zero and does not read: Shape::cache_identity.
    std::uint64_t cache_identity = 0;

    // Refuses what no disk can be.
    static Result<OpenResponse> parse(ByteView data);
    void emit(std::span<std::byte, kSize> out) const;

    friend bool operator==(const OpenResponse&, const OpenResponse&) = default;
};

struct CloseRequest {
    static constexpr std::size_t kSize = 8;

    std::uint32_t device = 0;

    static Result<CloseRequest> parse(ByteView data);
    void emit(std::span<std::byte, kSize> out) const;

    friend bool operator==(const CloseRequest&, const CloseRequest&) = default;
};

struct IoRequest {
    static constexpr std::size_t kSize = 32;
    static constexpr std::size_t kUsedSize = 26;  // The rest is padding, undefined from the kernel.
    static constexpr std::size_t kOldSize = 24;   // Before there was a priority.

    std::uint32_t device = 0;
    std::uint64_t sector = 0;
    std::uint32_t size = 0;  // Bytes.
    IoKind kind = IoKind::Read;
    bool sync = false;
    bool fua = false;
    bool preflush = false;
    bool no_unmap = false;
    std::uint16_t priority = 0;

    // Flags that are not known are ignored, as the kernel does.
    static Result<IoRequest> parse(ByteView data);
    void emit(std::span<std::byte, kSize> out) const;

    friend bool operator==(const IoRequest&, const IoRequest&) = default;
};

}  // namespace feroce::block
