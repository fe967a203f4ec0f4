#include "transport/counters.hpp"

#include "base/assert.hpp"

namespace feroce::transport {

const char* name(Counter counter) {
    switch (counter) {
        case Counter::SentPackets:
            return "sent_pkts";
        case Counter::ReceivedPackets:
            return "rcvd_pkts";
        case Counter::DuplicateRequest:
            return "duplicate_request";
        case Counter::OutOfSequenceRequest:
            return "out_of_seq_request";
        case Counter::ReceivedRnr:
            return "rcvd_rnr_err";
        case Counter::SentRnr:
            return "send_rnr_err";
        case Counter::ReceivedSequenceError:
            return "rcvd_seq_err";
        case Counter::AckDeferred:
            return "ack_deferred";
        case Counter::RetryExceeded:
            return "retry_exceeded_err";
        case Counter::RnrRetryExceeded:
            return "retry_rnr_exceeded_err";
        case Counter::CompleterRetry:
            return "completer_retry_err";
        case Counter::SendError:
            return "send_err";
        case Counter::LinkDowned:
            return "link_downed";
        case Counter::RdmaSends:
            return "rdma_sends";
        case Counter::RdmaReceives:
            return "rdma_recvs";
        case Counter::Retransmitted:
            return "retransmitted_pkts";
        case Counter::CongestionNotifications:
            return "rcvd_cnp";
        case Counter::HandedOver:
            return "handed_over";
        case Counter::RingSentPackets:
            return "ring_sent_pkts";
        case Counter::RingReceivedPackets:
            return "ring_rcvd_pkts";
        case Counter::RingFull:
            return "ring_full_pkts";
        case Counter::RingMemory:
            return "ring_memory_bytes";
        case Counter::RingRefused:
            return "ring_refused";
        case Counter::Count:
            break;
    }
    ASSERT(false);
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
        case DropReason::Count:
            break;
    }
    ASSERT(false);
}

}  // namespace feroce::transport
