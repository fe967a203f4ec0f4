#include "transport/reason.hpp"

#include <cstdio>

#include "base/assert.hpp"
#include "wire/print.hpp"

namespace feroce::transport {

namespace {

// The names that programs print, so that a person can search for what they see.
constexpr const char* kStatusNames[] = {
    "IBV_WC_SUCCESS",           "IBV_WC_LOC_LEN_ERR",
    "IBV_WC_LOC_QP_OP_ERR",     "IBV_WC_LOC_EEC_OP_ERR",
    "IBV_WC_LOC_PROT_ERR",      "IBV_WC_WR_FLUSH_ERR",
    "IBV_WC_MW_BIND_ERR",       "IBV_WC_BAD_RESP_ERR",
    "IBV_WC_LOC_ACCESS_ERR",    "IBV_WC_REM_INV_REQ_ERR",
    "IBV_WC_REM_ACCESS_ERR",    "IBV_WC_REM_OP_ERR",
    "IBV_WC_RETRY_EXC_ERR",     "IBV_WC_RNR_RETRY_EXC_ERR",
    "IBV_WC_LOC_RDD_VIOL_ERR",  "IBV_WC_REM_INV_RD_REQ_ERR",
    "IBV_WC_REM_ABORT_ERR",     "IBV_WC_INV_EECN_ERR",
    "IBV_WC_INV_EEC_STATE_ERR", "IBV_WC_FATAL_ERR",
    "IBV_WC_RESP_TIMEOUT_ERR",  "IBV_WC_GENERAL_ERR",
};
static_assert(std::size(kStatusNames) == static_cast<std::size_t>(WcStatus::GeneralError) + 1);

// In the order of Rule.
constexpr const char* kRuleNames[] = {
    "none",
    "retry_limit",
    "rnr_limit",
    "peer_refused",
    "local_key",
    "local_memory_gone",
    "response_malformed",
    "remote_key",
    "remote_memory_gone",
    "operation_not_enabled",
    "operation_sequence",
    "mtu_mismatch",
    "message_length",
    "receive_too_small",
    "receive_key",
    "receive_queue_gone",
    "misaligned",
    "too_many_reads",
    "invalidate_refused",
    "bind_refused",
    "completion_overflow",
    "moved_to_error",
    "message_too_long",
    "peer_silent",
    "process_forked",
};
static_assert(std::size(kRuleNames) == ErrorCounts::kRules);

// What is known when nothing is heard.
std::string silence(const Reason& reason) {
    if (reason.send_error != 0)
        return ": it was sent nothing, because " +
               describe_send_error(reason.send_error, reason.source, reason.destination);
    return reason.peer_heard ? "; it was heard before" : "; nothing was ever heard from it";
}

// Networks that carry only shorter packets than they say lose these, each time. ping's are of the
// same length: the headers of a WRITE's first packet and its ICRC are 32 bytes.
std::string black_hole(const Reason& reason) {
    const std::string peer = to_string(reason.destination);
    return "; no packet of the path MTU, " + std::to_string(reason.path_mtu) +
           " bytes, was ever acknowledged: if `ping -M do -s " +
           std::to_string(reason.path_mtu + 32) + " " + peer + "` fails and `ping " + peer +
           "` does not, the network loses packets that long";
}

std::string region(const mem::RegionName& name) {
    char text[128];
    const unsigned long long length = name.length, address = name.address;
    std::snprintf(text, sizeof text,
                  " (the region with key 0x%08x, %llu bytes at 0x%llx, is still registered)",
                  name.key, length, address);
    return text;
}

const char* flag_name(mem::AccessSet need) {
    if (need.has(mem::Access::RemoteWrite)) return "IBV_ACCESS_REMOTE_WRITE";
    if (need.has(mem::Access::RemoteRead)) return "IBV_ACCESS_REMOTE_READ";
    if (need.has(mem::Access::RemoteAtomic)) return "IBV_ACCESS_REMOTE_ATOMIC";
    return "IBV_ACCESS_LOCAL_WRITE";
}

const char* operation_name(mem::AccessSet need) {
    if (need.has(mem::Access::RemoteWrite)) return "an RDMA WRITE of ";
    if (need.has(mem::Access::RemoteRead)) return "an RDMA READ of ";
    if (need.has(mem::Access::RemoteAtomic)) return "an atomic on ";
    return "";
}

// Key, address and length of what was asked, and what speaks against it.
std::string details(const Reason& reason) {
    const mem::Attempt& asked = reason.attempt;
    const mem::RegionName& region = reason.region;
    char text[160];
    std::snprintf(text, sizeof text, " (%s%llu bytes at 0x%llx with key 0x%08x",
                  operation_name(asked.need), static_cast<unsigned long long>(asked.length),
                  static_cast<unsigned long long>(asked.address), asked.key);
    std::string out = text;
    if (reason.fault == mem::Fault::NoSuchKey && reason.had_key)
        out += "; what had this key was deregistered or unbound";
    if (reason.fault == mem::Fault::NoPermission && region.key != 0)
        out += std::string("; it lacks ") + flag_name(asked.need);
    if (reason.fault == mem::Fault::OutOfBounds && region.key != 0) {
        std::snprintf(text, sizeof text, "; the key is for %llu bytes at 0x%llx",
                      static_cast<unsigned long long>(region.length),
                      static_cast<unsigned long long>(region.address));
        out += text;
    }
    return out + ")";
}

bool has_retries(Rule rule) {
    return rule == Rule::RetryLimit || rule == Rule::RnrLimit;
}

}  // namespace

const char* text(Rule rule) {
    switch (rule) {
        case Rule::None:
            return "nothing is known to be wrong";
        case Rule::RetryLimit:
            return "the peer did not acknowledge";
        case Rule::RnrLimit:
            return "the peer had no receive posted";
        case Rule::PeerRefused:
            return "the peer refused the request";
        case Rule::LocalKey:
            return "a local buffer may not be used";
        case Rule::LocalMemoryGone:
            return "the memory of a local buffer is no longer mapped";
        case Rule::ResponseMalformed:
            return "the peer's response answers nothing that was asked";
        case Rule::RemoteKey:
            return "the peer named memory that it may not use";
        case Rule::RemoteMemoryGone:
            return "the memory that the peer named is no longer mapped";
        case Rule::OperationNotEnabled:
            return "the queue pair's access flags forbid the operation";
        case Rule::OperationSequence:
            return "the packets of a message came in an impossible order";
        case Rule::MtuMismatch:
            return "the two ends have different path MTUs";
        case Rule::MessageLength:
            return "the payload does not add up to the announced length";
        case Rule::ReceiveTooSmall:
            return "the message is longer than the posted receive";
        case Rule::ReceiveKey:
            return "the posted receive names memory that may not be written";
        case Rule::ReceiveQueueGone:
            return "the XRC receive queue that a message was filling was destroyed";
        case Rule::Misaligned:
            return "the address of an atomic is not a multiple of eight";
        case Rule::TooManyReads:
            return "more READs and atomics at once than max_dest_rd_atomic";
        case Rule::InvalidateRefused:
            return "the key may not be invalidated by this queue pair";
        case Rule::BindRefused:
            return "the memory window may not be bound like this";
        case Rule::CompletionOverflow:
            return "the completion queue was full";
        case Rule::MovedToError:
            return "the program moved the queue pair to the error state";
        case Rule::MessageTooLong:
            return "the datagram is longer than the path MTU";
        case Rule::PeerSilent:
            return "the peer was asked whether it is alive and did not answer (FEROCE_KEEPALIVE)";
        case Rule::ProcessForked:
            return "the queue pair belongs to the parent process";
    }
    ASSERT(false);
}

const char* name(Rule rule) {
    return kRuleNames[static_cast<std::size_t>(rule)];
}

const char* name(WcStatus status) {
    return kStatusNames[static_cast<std::size_t>(status)];
}

void ErrorCounts::count(const Reason& reason) {
    ++counts_[reason.at_responder ? 1 : 0][static_cast<std::size_t>(reason.rule)]
             [static_cast<std::size_t>(reason.status)];
}

std::uint64_t ErrorCounts::of(bool at_responder, Rule rule, WcStatus status) const {
    return counts_[at_responder ? 1 : 0][static_cast<std::size_t>(rule)]
                  [static_cast<std::size_t>(status)];
}

bool concerns_peer(const Reason& reason) {
    switch (reason.rule) {
        case Rule::RetryLimit:
        case Rule::RnrLimit:
        case Rule::PeerRefused:
        case Rule::PeerSilent:
        case Rule::ResponseMalformed:
        case Rule::MtuMismatch:
            return true;
        default:
            return reason.at_responder;
    }
}

std::string describe(const Reason& reason) {
    char head[160];
    const char* status = name(reason.status);
    const unsigned long long wr_id = reason.wr_id;
    if (reason.at_responder) {
        std::snprintf(head, sizeof head,
                      "QP 0x%06x refused its peer at PSN %u (%s): ", reason.qpn.raw,
                      reason.psn.raw(), status);
    } else {
        std::snprintf(head, sizeof head,
                      "work request 0x%llx of QP 0x%06x failed at PSN %u (%s): ", wr_id,
                      reason.qpn.raw, reason.psn.raw(), status);
    }
    std::string sentence = std::string(head) + text(reason.rule);
    if (has_retries(reason.rule)) sentence += " (" + std::to_string(reason.retries) + " retries)";
    if (reason.rule == Rule::RetryLimit) sentence += silence(reason);
    if (reason.rule == Rule::MtuMismatch)
        sentence += ": here it is " + std::to_string(reason.path_mtu) + ", and a packet with " +
                    std::to_string(reason.length) + " bytes came";
    if (reason.rule == Rule::OperationNotEnabled)
        sentence += std::string(": they lack ") + flag_name(reason.attempt.need);
    const bool gone = reason.rule == Rule::LocalMemoryGone || reason.rule == Rule::RemoteMemoryGone;
    if (gone && reason.region.key != 0) sentence += region(reason.region);
    if (reason.fault != mem::Fault::None)
        sentence += std::string(": ") + mem::to_string(reason.fault);
    if (reason.attempt.length != 0) sentence += details(reason);
    if (reason.syndrome != 0) {
        sentence += reason.at_responder ? "; answered with " : "; the peer answered with ";
        sentence += wire::to_string(wire::Syndrome{reason.syndrome});
    }
    // On one machine its process says more than its address would.
    if (concerns_peer(reason) && reason.source != reason.destination) {
        std::snprintf(head, sizeof head, "; the peer is QP 0x%06x at ", reason.peer.raw);
        sentence += head + to_string(reason.destination);
        const bool sent = reason.rule == Rule::RetryLimit && reason.send_error == 0;
        if (sent && reason.path_mtu != 0) sentence += black_hole(reason);
    }
    return sentence;
}

std::uint32_t ReasonLog::record(Reason reason) {
    const bool orderly = is_orderly(reason);
    std::uint32_t& next = orderly ? next_orderly_ : next_id_;
    const std::uint32_t number = next++;
    if (next == kOrderly) next = 1;  // 0 means "no reason" in a completion.
    reason.id = orderly ? number | kOrderly : number;
    if (orderly) {
        orderly_[number % kOrderlyCapacity] = reason;
    } else {
        reasons_[number % kCapacity] = reason;
        counts_.count(reason);
    }
    return reason.id;
}

const Reason* ReasonLog::find(std::uint32_t id) const {
    const std::uint32_t number = id & ~kOrderly;
    const Reason& slot =
        number == id ? reasons_[number % kCapacity] : orderly_[number % kOrderlyCapacity];
    return id != 0 && slot.id == id ? &slot : nullptr;
}

bool ReasonLog::was_overwritten(std::uint32_t id) const {
    const std::uint32_t number = id & ~kOrderly;
    if (number == 0) return false;
    return number == id ? number + kCapacity < next_id_ : number + kOrderlyCapacity < next_orderly_;
}

}  // namespace feroce::transport
