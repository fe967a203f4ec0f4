#include "cli/metrics/names.hpp"

#include <string>

namespace feroce::cli {
namespace {

constexpr KnownCounter kKnown[] = {
    {"sent_pkts", "sent_pkts", nullptr, "Packets sent."},
    {"rcvd_pkts", "rcvd_pkts", nullptr, "Packets received."},
    {"duplicate_request", "duplicate_request", "duplicate_requests_packets",
     "Requests that had been received before."},
    {"out_of_seq_request", "out_of_seq_request", nullptr,
     "Requests that came after a gap in the sequence."},
    {"rcvd_rnr_err", "rcvd_rnr_err", nullptr, "RNR NAKs received: the peer had no receive posted."},
    {"send_rnr_err", "send_rnr_err", nullptr, "RNR NAKs sent: no receive was posted here."},
    {"rcvd_seq_err", "rcvd_seq_err", nullptr, "Sequence NAKs received: the peer misses packets."},
    {"retry_exceeded_err", "retry_exceeded_err", nullptr, "Requests that ran out of retries."},
    {"retry_rnr_exceeded_err", "retry_rnr_exceeded_err", nullptr,
     "Requests that ran out of RNR retries."},
    {"completer_retry_err", "completer_retry_err", nullptr,
     "Times that a sender asked again, for a timeout or a lost response."},
    {"send_err", "send_err", nullptr, "Packets that the system refused to send."},
    {"rdma_sends", "rdma_sends", nullptr, "SENDs of programs that are completed."},
    {"rdma_recvs", "rdma_recvs", nullptr, "Receives of programs that a message filled."},
    {"local_ack_timeout_err", "ack_timeouts", "local_ack_timeout_errors",
     "Times that no acknowledgement came within the timeout."},
    {"packet_seq_err", "rcvd_seq_err", "packet_sequence_errors",
     "Sequence NAKs received: the peer misses packets."},
    {"implied_nak_seq_err", "implied_naks", "implied_nak_seq_errors",
     "Times that a later answer told that a response was lost."},
    {"out_of_sequence", "out_of_seq_request", "out_of_sequence_packets_received",
     "Requests that came after a gap in the sequence."},
    {"rnr_nak_retry_err", "rcvd_rnr_err", "rnr_nak_retry_packets_received",
     "RNR NAKs received: the peer had no receive posted."},
    {"out_of_buffer", "drop_no_receive", "out_of_buffer_drops",
     "Requests that found no receive posted."},
    {"rp_cnp_handled", "rcvd_cnp", "rp_cnp_packets_handled",
     "Congestion notifications received and followed."},
    {"rx_icrc_encapsulated", "drop_bad_icrc", "rx_icrc_encapsulated_errors",
     "Packets whose ICRC was wrong."},
    {"roce_adp_retrans", "resent_by_probe", "roce_adp_retransmits",
     "Packets sent again long before the timeout, because round trips are short."},
    {"req_cqe_error", "error/", "req_cqes_errors", "Work requests that failed, but for flushed."},
    {"req_remote_access_errors", "error/IBV_WC_REM_ACCESS_ERR/", "req_remote_access_errors",
     "Work requests that the peer refused for their memory key."},
    {"req_remote_invalid_request", "error/IBV_WC_REM_INV_REQ_ERR/",
     "req_remote_invalid_request_errors", "Work requests that the peer refused as invalid."},
    {"resp_remote_access_errors", "refusal/IBV_WC_REM_ACCESS_ERR/", "resp_remote_access_errors",
     "Requests that were refused here for their memory key."},
};

// What a card drops for its form alone.
constexpr const char* kMalformed[] = {"drop_too_short", "drop_unknown_opcode", "drop_bad_version",
                                      "drop_bad_pad",   "drop_bad_length",     "drop_bad_icrc"};

std::uint64_t malformed(const Counts& counts) {
    std::uint64_t sum = 0;
    for (const char* name : kMalformed) sum += count_of(counts, name);
    return sum;
}

constexpr PortCounter kPort[] = {
    {"port_xmit_data", "port_data_transmitted_bytes",
     [](const Counts& c) { return count_of(c, "sent_bytes"); }, 4, "Bytes sent."},
    {"port_rcv_data", "port_data_received_bytes",
     [](const Counts& c) { return count_of(c, "rcvd_bytes"); }, 4, "Bytes received."},
    {"port_xmit_packets", "port_packets_transmitted",
     [](const Counts& c) { return count_of(c, "sent_pkts"); }, 1, "Packets sent."},
    {"port_rcv_packets", "port_packets_received",
     [](const Counts& c) { return count_of(c, "rcvd_pkts"); }, 1, "Packets received."},
    {"port_rcv_errors", "port_errors_received", malformed, 1,
     "Packets dropped for their form or their ICRC."},
};

}  // namespace

std::span<const KnownCounter> known_counters() {
    return kKnown;
}

std::uint64_t value_of(const KnownCounter& counter, const Counts& counts) {
    const std::string source = counter.source;
    if (source.back() != '/') return count_of(counts, source);
    const std::uint64_t sum = sum_of(counts, source);
    return source == kErrors ? sum - sum_of(counts, source + "IBV_WC_WR_FLUSH_ERR/") : sum;
}

std::span<const PortCounter> port_counters() {
    return kPort;
}

}  // namespace feroce::cli
