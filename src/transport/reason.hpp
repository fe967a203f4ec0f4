// The reason chain: why a work completion failed. Each failing completion carries the id of the
// first cause, recorded once when a queue pair goes wrong; everything flushed afterwards points at
// it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/gid.hpp"
#include "base/ids.hpp"
#include "base/psn.hpp"
#include "mem/memory.hpp"
#include "transport/notice.hpp"
#include "transport/work.hpp"

namespace feroce::transport {

// The rule that was broken, or the limit that was reached.
enum class Rule : std::uint8_t {
    None,
    RetryLimit,           // No acknowledgement within retry_count resends.
    RnrLimit,             // The peer had no receive posted, rnr_retry times.
    PeerRefused,          // A NAK; `syndrome` says which.
    LocalKey,             // An SGE of ours names memory we may not use.
    LocalMemoryGone,      // Registered memory was unmapped or protected.
    ResponseMalformed,    // A response that answers nothing we asked.
    RemoteKey,            // The peer's rkey, bounds or permission (we refused it).
    RemoteMemoryGone,     // The peer's target memory is no longer mapped.
    OperationNotEnabled,  // The queue pair's access flags forbid the operation.
    OperationSequence,    // FIRST, MIDDLE, LAST in an order that makes no sense.
    MtuMismatch,          // A packet as long as another path MTU than ours.
    MessageLength,        // Payload does not add up to what the header promised.
    ReceiveTooSmall,      // The message is longer than the posted receive.
    ReceiveKey,           // The posted receive names memory we may not write.
    ReceiveQueueGone,     // An XRC receive queue was destroyed under a message.
    Misaligned,           // An atomic on an address that is not a multiple of eight.
    TooManyReads,         // More outstanding READs and atomics than dest_read_atomic_max.
    InvalidateRefused,    // An invalidate named a key that it may not.
    BindRefused,          // A memory window bind that the rules forbid.
    CompletionOverflow,   // The completion queue was full.
    MovedToError,         // The program itself moved the queue pair to ERR.
    MessageTooLong,       // A datagram longer than the path MTU.
    PeerSilent,           // The peer of an idle connection did not answer keep-alive.
    ProcessForked,        // The object belongs to the parent process.
};

const char* text(Rule rule);
const char* name(Rule rule);        // One word, for counters.
const char* name(WcStatus status);  // As programs print it.

struct Reason {
    std::uint32_t id = 0;
    Rule rule = Rule::None;
    WcStatus status = WcStatus::Success;
    mem::Fault fault = mem::Fault::None;
    std::uint8_t syndrome = 0;  // From the peer's AETH, or the one we sent.
    bool at_responder = false;  // We refused the peer, rather than the peer us.
    std::uint8_t retries = 0;
    bool peer_heard = false;   // RetryLimit: something came from the peer before.
    int send_error = 0;        // RetryLimit: the errno with which the kernel refuses our packets.
    std::uint32_t length = 0;  // MtuMismatch: of the packet that came, and of the path MTU here.
    // RetryLimit: not 0 if no packet of this length was acknowledged, though such were sent.
    std::uint32_t path_mtu = 0;
    mem::Attempt attempt;    // What was asked of memory, if that is what went wrong.
    mem::RegionName region;  // What has that key, or the memory that is gone, if it is known.
    bool had_key = false;    // The attempt's key belonged to what is gone now.
    Qpn qpn;
    Qpn peer;  // These three as they were then; the queue pair may be gone.
    Gid source;
    Gid destination;
    Psn psn;
    std::uint64_t wr_id = 0;
};

bool concerns_peer(const Reason& reason);  // The other end had a part in it.

std::string describe(const Reason& reason);  // One sentence for a person.

// How often each rule failed a work request, or made us refuse one of the peer, by status. What was
// flushed after it is not counted: it is the same trouble.
class ErrorCounts {
public:
    static constexpr std::size_t kRules = static_cast<std::size_t>(Rule::ProcessForked) + 1;
    static constexpr std::size_t kStatuses = static_cast<std::size_t>(WcStatus::GeneralError) + 1;

    void count(const Reason& reason);
    std::uint64_t of(bool at_responder, Rule rule, WcStatus status) const;

private:
    std::array<std::array<std::array<std::uint64_t, kStatuses>, kRules>, 2> counts_{};
};

// Where requests are flushed because the program ended the connection, nothing has failed.
constexpr bool is_orderly(const Reason& reason) {
    return reason.rule == Rule::MovedToError;
}

// The last reasons of one engine, addressed by id. Old ones are overwritten. Orderly ends have a
// place and numbers of their own: many of them would push a failure out.
class ReasonLog {
public:
    static constexpr std::size_t kCapacity = 256;  // Of failures.
    static constexpr std::size_t kOrderlyCapacity = 32;
    static constexpr std::uint32_t kOrderly = 0x8000'0000;  // In the ids of orderly ends.

    std::uint32_t record(Reason reason);
    const Reason* find(std::uint32_t id) const;  // Null when unknown or overwritten.
    bool was_overwritten(std::uint32_t id) const;
    std::uint32_t last_id() const { return next_id_ - 1; }  // Of a failure.

    const ErrorCounts& counts() const { return counts_; }  // Of all, the overwritten too.

    NoticeLog notices;  // What failed nothing here.

private:
    std::array<Reason, kCapacity> reasons_{};
    std::array<Reason, kOrderlyCapacity> orderly_{};
    ErrorCounts counts_;
    std::uint32_t next_id_ = 1;  // Below kOrderly, as the next one.
    std::uint32_t next_orderly_ = 1;
};

}  // namespace feroce::transport
