// What the lint is told and what it tells: requests, completions, findings. Plain values without
// pointers into the program, so that a rule is tested by handing it some.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace feroce::lint {

// Where in the program a call was made: a number that the edge gives to a backtrace. 0: unknown.
using Place = std::uint32_t;
// A completion queue, channel, shared receive queue or work request: only compared.
using Handle = const void*;

enum class Kind : std::uint8_t {
    BufferChanged,
    NoReceive,
    AccessFlags,
    ModifyQp,
    CqTooSmall,
    Unsignaled,
    Unacknowledged,
    MissedEvent,
    ErrorIgnored,
    RegionInUse,
    BadSge,
    InlineTooLong,
    Datagram,
    Disagreement,
    ForkedObject,
    CardLimit,
    ByteOrder,
    ReadEarly,
    ImmediateOrder,
    TwoThreads,
};
const char* name(Kind kind);  // As reports and docs/lint.md call it.

enum class Op : std::uint8_t { Send, Write, Read, Atomic, Local, Receive };
const char* name(Op op);

constexpr bool writes_locally(Op op) {
    return op == Op::Read || op == Op::Atomic || op == Op::Receive;
}

struct Sge {
    std::uint64_t address = 0;
    std::uint32_t length = 0;
    std::uint32_t key = 0;
};

// Hashes of the parts of a buffer: which differ says where it was changed.
struct Fingerprint {
    static constexpr std::size_t kParts = 16;
    bool known = false;  // The memory could be read.
    std::array<std::uint32_t, kParts> parts{};
};

// Lint writes this word over the first bytes of a READ's target when it is posted, where nothing
// may be relied on until it completes. A request that carries the word shows that the program read
// too early. A number that nobody else has; not the address of anything.
inline constexpr std::uint64_t kMark = 0xfe20'ce5e'1d0b'ad17;
struct Marks {
    static constexpr std::size_t kBytesMax = 64;
    std::uint8_t bytes = 0;  // Whole words from the begin of the first SGE. 0: none.
    std::array<std::byte, kBytesMax> before{};
};

// Why an SGE cannot be used, and the region that it was meant for, as far as one can tell.
enum class SgeFault : std::uint8_t { None, NoSuchKey, WrongPd, NotWritable, OutOfBounds };
struct SgeTrouble {
    SgeFault fault = SgeFault::None;
    std::uint32_t index = 0;
    std::uint64_t region_address =
        0;                            // OutOfBounds: of the key; NoSuchKey: what holds the address.
    std::uint64_t region_length = 0;  // 0: there is none.
    std::uint32_t region_key = 0;
};

struct Request {
    // More SGEs than these are checked when posted, but not followed.
    static constexpr std::size_t kFollowedSges = 4;

    std::uint64_t wr_id = 0;
    Handle given = nullptr;      // The program's own, which may be gone: only compared.
    std::uint64_t bytes = 0;     // Of all SGEs.
    std::uint64_t sequence = 0;  // Given by the ledger.
    std::array<Sge, kFollowedSges> sges{};
    std::uint8_t sge_count = 0;  // Of sges.
    Op op = Op::Send;
    bool signaled = false;
    bool inlined = false;
    bool fenced = false;       // Carried out when earlier READs and atomics are complete.
    bool carries = false;      // kMark is in its bytes or numbers.
    std::uint64_t remote = 0;  // READ, atomic: the address at the peer.
    std::optional<std::uint32_t> immediate;  // As it lies in imm_data.
    Marks marks;
    Fingerprint print;  // Of a SEND's or WRITE's bytes when it was posted.
    SgeTrouble trouble;
    Place place = 0;
};

struct Completion {
    std::uint32_t qpn = 0;
    std::uint64_t wr_id = 0;
    bool receive = false;
    int status = 0;                            // ibv_wc_status.
    const char* status_name = "";              // As programs print it.
    std::string why;                           // What the device knows of a failure; may be empty.
    std::optional<std::uint32_t> immediate{};  // As it lies in imm_data.
    bool exchanged = false;                    // The peer's number and first PSN; `why` says so.
};

// A thread of the program: only compared, never 0.
using Thread = std::uint64_t;

enum class QpType : std::uint8_t { Rc, Uc, Ud, Xrc };

struct QpMade {
    std::uint32_t qpn = 0;
    QpType type = QpType::Rc;
    std::uint32_t pd = 0;
    std::uint32_t send_max = 0;
    std::uint32_t inline_max = 0;
    std::uint32_t datagram_max = 0;  // UD: the longest message.
    Handle send_cq = nullptr;
    Handle receive_cq = nullptr;
    Handle srq = nullptr;
    bool one_thread = false;  // Its caller promised to use it by one thread at a time.
};

struct QpAsked {  // Before the device has settled what it grants.
    QpType type = QpType::Rc;
    std::uint32_t sends = 0;
    std::uint32_t receives = 0;
    std::uint32_t send_sges = 0;
    std::uint32_t receive_sges = 0;
    std::uint32_t inline_max = 0;
};

// States of a queue pair as far as a rule asks.
enum class QpState : std::uint8_t { Reset, Quiet, Connected, Error };

struct Modify {
    std::uint32_t qpn = 0;
    QpState to = QpState::Reset;  // Of a call that succeeded.
    bool refused = false;
    std::string from_name, to_name;
    std::string missing, unwanted;  // Names of attributes, if the mask was wrong.
    std::string why;
    std::uint32_t reads = 0;   // READs and atomics that it may have outstanding, and
    std::uint32_t served = 0;  // those that it serves; 0 if the call does not set them.
    Place place = 0;
};

struct Registration {  // One that was refused, because of its flags or of memory that is not there.
    std::uint64_t length = 0;
    bool local_write = false;
    bool remote_change = false;
    std::string why;
    Place place = 0;
};

// What the device saw of a peer's trouble.
enum class NoticeKind : std::uint8_t { NoReceive, FirstPsn, WrongQkey, LongDatagram, CqOverrun };
struct Notice {
    NoticeKind kind = NoticeKind::NoReceive;
    std::uint32_t qpn = 0;
    std::string sentence;
};

// Events of the connection manager that the program fetched of an id that it destroys.
struct CmEvents {
    std::uint64_t fetched = 0;
    std::uint64_t acknowledged = 0;
};

struct Finding {
    Kind kind{};
    std::string sentence;
    const char* verb = "posted";  // What the program did at `place`.
    Place place = 0;
    std::string mend;
};

std::string hex(std::uint64_t number);
std::string qpn_text(std::uint32_t qpn);  // As the feroce command writes it: 0x000112.
// "WR 7 (SEND of 64 bytes on queue pair 0x000112)".
std::string describe(const Request& request, std::uint32_t qpn);

}  // namespace feroce::lint
