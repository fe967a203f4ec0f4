#include "transport/counters.hpp"

#include <iterator>

#include "base/assert.hpp"

namespace feroce::transport {

namespace {

// In the order of Counter; rxe's hw_counters names where it has one.
constexpr const char* kCounterNames[] = {
    "sent_pkts",           "rcvd_pkts",          "duplicate_request",
    "out_of_seq_request",  "rcvd_rnr_err",       "send_rnr_err",
    "rcvd_seq_err",        "retry_exceeded_err", "retry_rnr_exceeded_err",
    "completer_retry_err", "send_err",           "rdma_sends",
    "rdma_recvs",          "retransmitted_pkts", "rcvd_cnp",
    "sent_bytes",          "rcvd_bytes",         "ack_timeouts",
    "implied_naks",        "resent_by_timeout",  "resent_by_probe",
    "resent_by_nak_seq",   "resent_by_rnr",      "resent_by_lost_response",
    "handed_over",         "ring_sent_pkts",     "ring_rcvd_pkts",
    "ring_full_pkts",      "ring_memory_bytes",  "ring_refused",
};
static_assert(std::size(kCounterNames) == static_cast<std::size_t>(Counter::Count));

}  // namespace

const char* name(Counter counter) {
    return kCounterNames[static_cast<std::size_t>(counter)];
}

const char* name(DropReason reason) {
    switch (reason) {
        case DropReason::TooShort:
            return "too_short";
        case DropReason::UnknownOpcode:
            return "unknown_opcode";
        case DropReason::BadVersion:
            return "bad_version";
        case DropReason::BadPad:
            return "bad_pad";
        case DropReason::BadLength:
            return "bad_length";
        case DropReason::BadIcrc:
            return "bad_icrc";
        case DropReason::UnsolvableId:
            return "unsolvable_id";
        case DropReason::NoSuchQp:
            return "no_such_qp";
        case DropReason::WrongQpType:
            return "wrong_qp_type";
        case DropReason::WrongQpState:
            return "wrong_qp_state";
        case DropReason::WrongSource:
            return "wrong_source";
        case DropReason::WrongSourcePort:
            return "wrong_source_port";
        case DropReason::BadPkey:
            return "bad_pkey";
        case DropReason::BadQkey:
            return "bad_qkey";
        case DropReason::NotForUs:
            return "not_for_us";
        case DropReason::OutOfSequence:
            return "out_of_sequence";
        case DropReason::DuplicateUnknownAtomic:
            return "duplicate_unknown_atomic";
        case DropReason::DuplicateReadBusy:
            return "duplicate_read_busy";
        case DropReason::DuplicateReadDenied:
            return "duplicate_read_denied";
        case DropReason::StaleAck:
            return "stale_ack";
        case DropReason::UnexpectedResponse:
            return "unexpected_response";
        case DropReason::NoReceive:
            return "no_receive";
        case DropReason::ReceiveTooSmall:
            return "receive_too_small";
        case DropReason::UcGap:
            return "uc_gap";
        case DropReason::UcBroken:
            return "uc_broken";
        case DropReason::UcAccess:
            return "uc_access";
        case DropReason::MulticastNoGroup:
            return "multicast_no_group";
        case DropReason::CompletionsHeld:
            return "completions_held";
        case DropReason::CopiesBehind:
            return "copies_behind";
        case DropReason::Count:
            break;
    }
    ASSERT(false);
}

}  // namespace feroce::transport
