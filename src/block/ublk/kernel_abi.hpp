// The kernel's interface of ublk, as far as we use it. Its own header is too old in many places:
// these command numbers are from Linux 6.4, and the question for features from 6.5.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>

namespace feroce::block::ublk {

struct ControlCommand {
    std::uint32_t device = 0;
    std::uint16_t queue = 0xffff;  // None.
    std::uint16_t length = 0;      // Of what `address` refers to.
    std::uint64_t address = 0;
    std::uint64_t data = 0;
    std::uint64_t reserved = 0;
};

struct DeviceFacts {
    std::uint16_t queues = 1;
    std::uint16_t depth = 0;
    std::uint16_t state = 0;
    std::uint16_t reserved0 = 0;
    std::uint32_t request_bytes = 0;  // The most of one request.
    std::uint32_t device = 0;
    std::int32_t server = 0;  // Its pid, from the start on.
    std::uint32_t reserved1 = 0;
    std::uint64_t flags = 0;
    std::uint64_t mark = 0;  // The server's own; the kernel does not look at it.
    std::uint64_t reserved2[3] = {};
};

struct Params {
    std::uint32_t length = sizeof(Params);
    std::uint32_t parts = 0;  // Which of the following are there.
    std::uint32_t attributes = 0;
    std::uint8_t logical_shift = 9;
    std::uint8_t physical_shift = 9;
    std::uint8_t best_shift = 0;
    std::uint8_t least_shift = 0;
    std::uint32_t request_sectors = 0;
    std::uint32_t chunk_sectors = 0;
    std::uint64_t sectors = 0;
    std::uint64_t boundary = 0;
    std::uint32_t discard_alignment = 0;
    std::uint32_t discard_granularity = 0;
    std::uint32_t discard_sectors = 0;
    std::uint32_t zeroes_sectors = 0;
    std::uint16_t discard_segments = 0;
    std::uint16_t reserved = 0;
};

// What the kernel asks of a disk, by tag; it lies in memory that we only read.
struct Request {
    std::uint32_t what = 0;  // The low byte says what, the others how.
    std::uint32_t sectors = 0;
    std::uint64_t first_sector = 0;
    std::uint64_t address = 0;
};

struct QueueCommand {
    std::uint16_t queue = 0;
    std::uint16_t tag = 0;
    std::int32_t result = 0;
    std::uint64_t buffer = 0;
};

static_assert(sizeof(ControlCommand) == 32 && sizeof(DeviceFacts) == 64 && sizeof(Params) == 64 &&
              sizeof(Request) == 24 && sizeof(QueueCommand) == 16);

inline constexpr std::uint32_t kInfo = _IOR('u', 0x02, ControlCommand);
inline constexpr std::uint32_t kAdd = _IOWR('u', 0x04, ControlCommand);
inline constexpr std::uint32_t kRemove = _IOWR('u', 0x05, ControlCommand);
inline constexpr std::uint32_t kStart = _IOWR('u', 0x06, ControlCommand);
inline constexpr std::uint32_t kStop = _IOWR('u', 0x07, ControlCommand);
inline constexpr std::uint32_t kSetParams = _IOWR('u', 0x08, ControlCommand);
inline constexpr std::uint32_t kFeatures = _IOR('u', 0x13, ControlCommand);
inline constexpr std::uint32_t kFetch = _IOWR('u', 0x20, QueueCommand);
inline constexpr std::uint32_t kCommitAndFetch = _IOWR('u', 0x21, QueueCommand);

inline constexpr std::uint32_t kBasicPart = 1, kDiscardPart = 2;
inline constexpr std::uint32_t kReadOnly = 1, kRotational = 2, kVolatileCache = 4, kFuaWorks = 8;

inline constexpr std::uint32_t kRead = 0, kWrite = 1, kFlush = 2, kDiscard = 3, kZeroes = 5;
inline constexpr std::uint32_t kFua = 1u << 13, kKeepSpace = 1u << 15;

inline constexpr std::uint32_t kUringCommand = 46;  // IORING_OP_URING_CMD
inline constexpr std::size_t kCommandOffset = 48;   // Of the command in an entry.

}  // namespace feroce::block::ublk
