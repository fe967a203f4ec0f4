// Counters under rxe's names, and a named reason for every packet that is dropped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/round_trips.hpp"

namespace feroce::transport {

// Two of rxe's are not there: ack_deferred counts turns of a kernel task, and the end of a link
// (link_downed) is no event of one process.
enum class Counter : std::uint8_t {
    SentPackets,
    ReceivedPackets,
    DuplicateRequest,
    OutOfSequenceRequest,
    ReceivedRnr,
    SentRnr,
    ReceivedSequenceError,
    RetryExceeded,
    RnrRetryExceeded,
    CompleterRetry,
    SendError,     // Packets that the port could not send.
    RdmaSends,     // SENDs of the program that are completed, with success or not.
    RdmaReceives,  // Receives of the program that a message filled.
    Retransmitted,
    CongestionNotifications,
    SentBytes,      // From the BTH to the ICRC, as port counters of a card count them.
    ReceivedBytes,  // Likewise, of all packets, those that are dropped too.
    AckTimeouts,    // Of the length that the program chose.
    ImpliedNaks,    // A response was missing, which a later answer told.
    // Packets sent again, by what made the sender do it: parts of Retransmitted.
    ResentByTimeout,
    ResentByProbe,  // Of the oldest packet, long before that timeout; or what its answer told.
    ResentBySequence,
    ResentByRnr,
    ResentByResponse,  // See ImpliedNaks.
    HandedOver,        // Landed here but were another process's.
    RingSentPackets,
    RingReceivedPackets,
    RingFull,     // Packets that a ring had no room for; they went by UDP.
    RingMemory,   // Bytes that the rings have now by which we send.
    RingRefused,  // Rings that were not made, because they may have no more memory.
    Count,
};

enum class DropReason : std::uint8_t {
    TooShort,
    UnknownOpcode,
    BadVersion,
    BadPad,
    BadLength,
    BadIcrc,
    UnsolvableId,
    NoSuchQp,
    WrongQpType,
    WrongQpState,
    WrongSource,
    WrongSourcePort,
    BadPkey,
    BadQkey,
    NotForUs,
    OutOfSequence,
    DuplicateUnknownAtomic,
    DuplicateReadBusy,
    DuplicateReadDenied,
    StaleAck,
    UnexpectedResponse,
    NoReceive,
    ReceiveTooSmall,
    UcGap,
    UcBroken,
    UcAccess,
    MulticastNoGroup,
    CompletionsHeld,  // No place for one more completion that waits for its acknowledgement.
    CopiesBehind,     // Unreliable, and too much is on its way into GPU memory already.
    Count,
};

const char* name(Counter counter);  // rxe's hw_counters name where it has one.
const char* name(DropReason reason);

struct Counters {
    std::array<std::uint64_t, static_cast<std::size_t>(Counter::Count)> values{};
    std::array<std::uint64_t, static_cast<std::size_t>(DropReason::Count)> drops{};
    RoundTrips round_trips;

    void add(Counter c, std::uint64_t n = 1) { values[static_cast<std::size_t>(c)] += n; }
    void set(Counter c, std::uint64_t n) { values[static_cast<std::size_t>(c)] = n; }
    void drop(DropReason r) { ++drops[static_cast<std::size_t>(r)]; }
    std::uint64_t operator[](Counter c) const { return values[static_cast<std::size_t>(c)]; }
    std::uint64_t operator[](DropReason r) const { return drops[static_cast<std::size_t>(r)]; }
};

}  // namespace feroce::transport
