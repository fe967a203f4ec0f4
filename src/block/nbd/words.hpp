// NBD's words on the wire, and its errors: the fixed newstyle negotiation and simple replies of the
// protocol (doc/proto.md of the reference implementation). All numbers are big-endian.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "feroce/block/client.hpp"

namespace feroce::block::nbd {

inline constexpr std::uint64_t kGreeting = 0x4e42'444d'4147'4943;     // "NBDMAGIC"
inline constexpr std::uint64_t kOptionMagic = 0x4948'4156'454f'5054;  // "IHAVEOPT"
inline constexpr std::uint64_t kOptionReplyMagic = 0x0003'e889'0455'65a9;
inline constexpr std::uint32_t kRequestMagic = 0x2560'9513;
inline constexpr std::uint32_t kReplyMagic = 0x6744'6698;

// Flags of the greeting, and of the client's answer.
inline constexpr std::uint32_t kFixedNewstyle = 1;
inline constexpr std::uint32_t kNoZeroes = 2;

enum class Option : std::uint32_t {
    ExportName = 1,
    Abort = 2,
    List = 3,
    Info = 6,
    Go = 7,
};

// Replies to options.
inline constexpr std::uint32_t kAck = 1;
inline constexpr std::uint32_t kServer = 2;
inline constexpr std::uint32_t kInfo = 3;
inline constexpr std::uint32_t kUnsupported = 0x8000'0001;
inline constexpr std::uint32_t kInvalid = 0x8000'0003;
inline constexpr std::uint32_t kUnknown = 0x8000'0006;

// What an info reply is about.
inline constexpr std::uint16_t kInfoExport = 0;
inline constexpr std::uint16_t kInfoBlockSize = 3;

// What an export can do.
inline constexpr std::uint16_t kHasFlags = 1 << 0;
inline constexpr std::uint16_t kReadOnly = 1 << 1;
inline constexpr std::uint16_t kFlushes = 1 << 2;
inline constexpr std::uint16_t kFuaWorks = 1 << 3;
inline constexpr std::uint16_t kRotational = 1 << 4;
inline constexpr std::uint16_t kTrims = 1 << 5;
inline constexpr std::uint16_t kZeroes = 1 << 6;
inline constexpr std::uint16_t kMultiConn = 1 << 8;

enum class Command : std::uint16_t {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
};

// Flags of a command.
inline constexpr std::uint16_t kFua = 1 << 0;
inline constexpr std::uint16_t kNoHole = 1 << 1;

// What clients may count on without asking.
inline constexpr std::uint32_t kRequestMax = 32 << 20;

struct Request {
    static constexpr std::size_t kSize = 28;

    std::uint16_t flags = 0;
    std::uint16_t command = 0;
    std::uint64_t cookie = 0;
    std::uint64_t offset = 0;
    std::uint32_t length = 0;

    // Nothing if it is no request.
    static std::optional<Request> parse(std::span<const std::byte, kSize> in) {
        if (load_be32(in.first<4>()) != kRequestMagic) return std::nullopt;
        return Request{load_be16(in.subspan<4, 2>()), load_be16(in.subspan<6, 2>()),
                       load_be64(in.subspan<8, 8>()), load_be64(in.subspan<16, 8>()),
                       load_be32(in.subspan<24, 4>())};
    }
    bool is(Command what) const { return command == static_cast<std::uint16_t>(what); }
};

struct Reply {
    static constexpr std::size_t kSize = 16;

    std::uint32_t error = 0;
    std::uint64_t cookie = 0;

    void emit(std::span<std::byte, kSize> out) const {
        store_be32(out.first<4>(), kReplyMagic);
        store_be32(out.subspan<4, 4>(), error);
        store_be64(out.subspan<8, 8>(), cookie);
    }
};

// What a client is told of a disk.
struct ExportInfo {
    std::uint64_t size = 0;
    std::uint16_t flags = 0;
    std::uint32_t block_min = 1;
    std::uint32_t block_preferred = 4096;
    std::uint32_t block_max = kRequestMax;

    // One disk serves all connections, and its flushes cover what any of them has written: hence
    // kMultiConn.
    static ExportInfo of(const DiskInfo& disk);
};

// NBD knows a handful of errors; another number would say that the client has asked something
// wrong. On Linux theirs are the same.
constexpr int code_of(int code) {
    switch (code) {
        case EPERM:
        case EIO:
        case ENOMEM:
        case EINVAL:
        case ENOSPC:
        case EOPNOTSUPP:
            return code;
        case EROFS:
        case EACCES:
            return EPERM;
        case EDQUOT:
        case EFBIG:
            return ENOSPC;
        default:
            return EIO;  // No path in time, a disk that is gone, a server that does not speak.
    }
}

}  // namespace feroce::block::nbd
