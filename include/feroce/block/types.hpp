// The words of block devices: what is asked of a disk, how it may be opened, and what a disk is
// like. The numbers are those of the Linux kernel's RNBD.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace feroce::block {

inline constexpr std::uint32_t kSectorSize = 512;  // Of the wire, whatever the disk's blocks are.

enum class IoKind : std::uint8_t {
    Read = 0,
    Write = 1,
    Flush = 2,
    Discard = 3,
    SecureErase = 4,
    WriteZeroes = 5,
};

enum class AccessMode : std::uint8_t {
    ReadOnly = 0,   // Any number at a time.
    ReadWrite = 1,  // One at a time.
    Migration = 2,  // A second writer beside the first, while a virtual machine moves.
};

// What a disk is like.
struct Shape {
    std::uint64_t size = 0;  // Bytes.
    std::uint32_t logical_block = kSectorSize;
    std::uint32_t physical_block = 4096;
    std::uint32_t discard_granularity = 0;  // 0: it cannot discard.
    bool zeroes = true;                     // It can write zeroes without being sent any.
    bool volatile_cache = false;  // What was written is durable only after a flush or with FUA.
    bool rotational = false;
    // Another value than before: what had not been flushed may be lost since then, and without a
    // volatile cache the whole content is. 0: not known.
    std::uint64_t cache_identity = 0;
};

// A client of RTRS as its session names itself, also after a reconnect. All zero: none.
using ClientId = std::array<std::byte, 16>;

// The session that may write a disk; kept as long as the disk's content is (docs/adr/0018).
struct WriterRecord {
    std::uint64_t store = 0;       // Another value: another content.
    std::uint64_t generation = 0;  // Goes up with each new grant for writing.
    // Something acknowledged under this generation is lost: no flush of it succeeds any more.
    bool flush_failed = false;
    // Writers of this generation that do not know it, as the kernel's; two while one moves. They
    // may go on when the server is started again, by the name that they opened the disk by.
    struct Holder {
        ClientId client{};
        std::uint32_t name = 0;  // A number of it.
        friend bool operator==(const Holder&, const Holder&) = default;
    };
    std::array<Holder, 2> holders = {};

    friend bool operator==(const WriterRecord&, const WriterRecord&) = default;
};

}  // namespace feroce::block
