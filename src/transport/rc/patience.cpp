// When a requester stops waiting: the timeout that spends a retry, and the probes before it, which
// do not.
#include <algorithm>

#include "base/probe.hpp"
#include "transport/rc/recovery.hpp"
#include "transport/rc/requester.hpp"

namespace feroce::transport::rc {

namespace {

// IBTA 9.7.6.1.3: 4.096 us * 2^timeout.
Duration ack_timeout(std::uint8_t timeout) {
    return Duration(std::int64_t{4096} << timeout);
}

// Longer than a busy machine takes to schedule the peer, shorter than most timeouts.
constexpr Duration kEarlyResendMin = std::chrono::milliseconds(3);
// By memory nothing is lost but what finds a ring full: a peer that is late is waiting for a core.
constexpr Duration kEarlyResendByRing = std::chrono::milliseconds(20);
constexpr std::uint8_t kEarlyResendsMax = 6;
// Where each waits less, so that they last as long together.
constexpr std::uint8_t kRepairsMax = 10;
// Within each timeout but the first, where no round trip is known: after one, three and seven
// eighths of it.
constexpr std::uint8_t kBlindProbes = 3;
// A repair that is repeated in vain costs one packet.
constexpr Duration kRepairAgainMin = std::chrono::microseconds(200);

}  // namespace

void Requester::on_timer(Instant now) {
    if (rnr_until_ != kNever && now >= rnr_until_) rnr_until_ = kNever;  // Pump goes on by itself.
    const bool timed_out = now >= retry_deadline_;
    if (!timed_out && now < probe_.deadline) return;
    qp_.services().counters.add(Counter::CompleterRetry);
    gap_reported_ = false;
    if (timed_out) {
        qp_.services().counters.add(Counter::AckTimeouts);
        FEROCE_PROBE3(timeout, qp_.qpn().raw, retries_left_, flight_.una.psn().raw());
        qp_.window()->on_loss(now);
        if (qp_.window()->smoothed_rtt() == Duration{0}) probe_.sent = 0;
        return go_back(now, Counter::ResentByTimeout, Rule::RetryLimit, 0);
    }
    probe_.deadline = kNever;
    probe_.due = flight_.bytes > 0;
    probe_.cause = Counter::ResentByProbe;
    ++probe_.sent;
}

Instant Requester::deadline() const {
    return std::min({retry_deadline_, probe_.deadline, rnr_until_});
}

void Requester::on_attributes(Instant now) {
    if (flight_.bytes > 0 && retry_deadline_ == kNever) arm(now);
}

// What began together times out together, and would fill a queue together each time. So from the
// second time on it takes up to a fourth longer.
Duration Requester::ack_patience() const {
    const QpAttributes& attributes = qp_.attributes();
    const Duration timeout = ack_timeout(attributes.timeout);
    if (retries_left_ == attributes.retry_count) return timeout;
    constexpr std::uint32_t kGoldenRatio = 0x9e3779b1;  // Of 2^32: spreads neighbours.
    const std::uint32_t mixed =
        (qp_.qpn().raw + attributes.send_psn.raw() * 8 + retries_left_) * kGoldenRatio;
    return timeout + timeout * (mixed >> 24) / 1024;
}

void Requester::arm(Instant now) {
    if (qp_.attributes().timeout == 0) return;
    if (retry_deadline_ == kNever) retry_deadline_ = now + ack_patience();
    const Duration round_trip = qp_.window()->smoothed_rtt();
    if (round_trip == Duration{0}) return arm_blindly(now);
    const bool is_cheap = probe_.is_repair || has_board_ || may_probe_early();
    if (probe_.sent > (is_cheap ? kRepairsMax : kEarlyResendsMax)) return;
    const Duration least = qp_.window()->is_by_ring() ? kEarlyResendByRing : kEarlyResendMin;
    const Duration patience = is_cheap ? std::max<Duration>(2 * round_trip, kRepairAgainMin)
                                       : std::max<Duration>(4 * round_trip, least);
    probe_.deadline = now + patience * (1 << probe_.sent);
}

// Nothing was ever acknowledged, and the first timeout is over: the peer is not there, or nearly
// all is lost. By memory only the former can be.
void Requester::arm_blindly(Instant now) {
    if (qp_.window()->is_by_ring() || probe_.sent >= kBlindProbes) return;
    if (retries_left_ == qp_.attributes().retry_count) return;
    probe_.deadline = now + ack_patience() * (1 << probe_.sent) / (1 << kBlindProbes);
}

}  // namespace feroce::transport::rc
