// Work requests as the caller posts them, and completions as the caller polls them. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.hpp"
#include "mem/memory.hpp"
#include "mem/sge.hpp"
#include "transport/types.hpp"

namespace feroce::transport {

// The largest scatter-gather list of any work request.
inline constexpr std::uint32_t kSgeMax = 32;
// The longest message (IBTA 9.7.2). At the smallest path MTU it has 2^23 packets, half of all PSNs.
inline constexpr std::uint64_t kMessageBytesMax = std::uint64_t{1} << 31;

enum class SendOp : std::uint8_t {  // libibverbs' numbers, which tracers see.
    Write = 0,
    WriteImmediate = 1,
    Send = 2,
    SendImmediate = 3,
    Read = 4,
    CompareSwap = 5,
    FetchAdd = 6,
    LocalInvalidate = 7,
    BindWindow = 8,
    SendInvalidate = 9,
    Flush = 14,
    AtomicWrite = 15,
};

constexpr bool is_send(SendOp op) {
    return op == SendOp::Send || op == SendOp::SendImmediate || op == SendOp::SendInvalidate;
}

constexpr bool is_local(SendOp op) {  // Sends nothing.
    return op == SendOp::LocalInvalidate || op == SendOp::BindWindow;
}

// Answered by a response of its own, which no other acknowledgement can stand for.
constexpr bool needs_response(SendOp op) {
    return op == SendOp::Read || op == SendOp::CompareSwap || op == SendOp::FetchAdd ||
           op == SendOp::AtomicWrite || op == SendOp::Flush;
}

struct SendWr {
    std::uint64_t wr_id = 0;
    SendOp op = SendOp::Send;
    bool signaled = false;
    bool solicited = false;
    bool fence = false;
    bool inlined = false;         // The bytes are copied when posted; the keys are not looked at.
    std::uint32_t immediate = 0;  // Host order of the big-endian word on the wire.
    RKey invalidate;              // SendInvalidate, LocalInvalidate.
    std::uint64_t remote_address = 0;
    RKey rkey;
    std::uint64_t compare_add = 0;  // CompareSwap: compare; FetchAdd: add; AtomicWrite: the value.
    std::uint64_t swap = 0;
    std::uint32_t flush_type = 0;
    std::span<const mem::Sge> sges;
    // Unreliable datagrams:
    Path path;
    Qpn destination_qpn;
    Qkey qkey;
    // Extended reliable connections:
    SrqNumber remote_srq;
    mem::WindowBind bind;  // BindWindow.
};

struct ReceiveWr {
    std::uint64_t wr_id = 0;
    std::span<const mem::Sge> sges;
};

// Values of ibv_wc_status.
enum class WcStatus : std::uint8_t {
    Success,
    LocalLengthError,
    LocalQpOperationError,
    LocalEecOperationError,
    LocalProtectionError,
    FlushError,
    WindowBindError,
    BadResponseError,
    LocalAccessError,
    RemoteInvalidRequestError,
    RemoteAccessError,
    RemoteOperationError,
    RetryExceededError,
    RnrRetryExceededError,
    LocalRddViolationError,
    RemoteInvalidRdRequestError,
    RemoteAbortedError,
    InvalidEecnError,
    InvalidEecStateError,
    FatalError,
    ResponseTimeoutError,
    GeneralError,
};

// Values of ibv_wc_opcode.
enum class WcOpcode : std::uint8_t {
    Send = 0,
    Write = 1,
    Read = 2,
    CompareSwap = 3,
    FetchAdd = 4,
    BindWindow = 5,
    LocalInvalidate = 6,
    Flush = 8,
    AtomicWrite = 9,
    Receive = 128,
    ReceiveWriteImmediate = 129,
};

struct Completion {
    std::uint64_t wr_id = 0;
    std::uint64_t timestamp_ns = 0;  // Engine time of completion.
    WcStatus status = WcStatus::Success;
    WcOpcode opcode = WcOpcode::Send;
    bool has_immediate = false;
    bool has_invalidate = false;
    bool has_grh = false;
    bool solicited = false;  // The peer asked for an event.
    bool over_ipv6 = false;  // With has_grh: which kind of header stands in the 40 bytes.
    std::uint16_t pkey_index = 0;
    std::uint32_t byte_length = 0;
    std::uint32_t immediate = 0;  // Or the key that was invalidated.
    std::uint32_t reason = 0;     // Id in the ReasonLog of the first cause; 0 on success.
    Qpn qpn;
    Qpn source_qpn;
};

class CompletionSink {
public:
    virtual ~CompletionSink() = default;
    // False if it was full: the completion is lost, and with it the queue pair.
    [[nodiscard]] virtual bool push(const Completion& completion) = 0;
    // Several at once, in their order. Returns how many entered: the next one is lost then, and
    // those after it were not tried.
    [[nodiscard]] virtual std::size_t push_run(std::span<const Completion* const> run) {
        std::size_t entered = 0;
        while (entered < run.size() && push(*run[entered])) ++entered;
        return entered;
    }
    // How many it can hold, if some were lost because it was full; else 0.
    virtual std::uint32_t overflowed_at() const { return 0; }
    virtual void purge(Qpn) {}  // Drops completions of a queue pair that goes to RESET.
};

// Values of ibv_event_type, as far as a queue can cause them.
enum class AsyncEventType : std::uint8_t {
    CqError = 0,
    QpFatal = 1,
    QpRequestError = 2,
    QpAccessError = 3,
    CommunicationEstablished = 4,
    SendQueueDrained = 5,
    SrqError = 14,
    SrqLimitReached = 15,
    QpLastWqeReached = 16,
};

}  // namespace feroce::transport
