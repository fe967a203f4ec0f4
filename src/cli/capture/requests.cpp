#include "cli/capture/requests.hpp"

#include <algorithm>

namespace feroce::cli {
namespace {

// Farther than a window can be: another life of the queue pair, or an answer to somebody else.
constexpr std::int32_t kFar = 1 << 20;

SeenRequest announced_by(const wire::Packet& packet) {
    SeenRequest out{.psn = packet.bth.psn, .verb = packet.info->verb};
    out.length = packet.payload.size();
    if (packet.info->has(wire::Header::Reth)) {
        const wire::Reth reth = packet.reth();
        out.has_memory = true;
        out.address = reth.address;
        out.key = reth.rkey.raw;
        out.length = reth.length;
    }
    if (packet.info->has(wire::Header::AtomicEth)) {
        const wire::AtomicEth atomic = packet.atomic_eth();
        out.has_memory = true;
        out.address = atomic.address;
        out.key = atomic.rkey.raw;
        out.length = 8;
    }
    return out;
}

bool asks_for_data(wire::Verb verb) {
    return verb == wire::Verb::ReadRequest || verb == wire::Verb::CompareSwap ||
           verb == wire::Verb::FetchAdd;
}

}  // namespace

void SeenRequests::begin(Psn psn) {
    begun_ = true;
    first_ = next_ = unacked_ = psn;
}

bool SeenRequests::holds(Psn psn) const {
    // How far a READ of unknown MTU may reach.
    constexpr std::uint32_t kReadMax = 8'192;
    const Psn end = certain_ ? next_ : next_ + kReadMax;
    return begun_ && distance(first_, psn) >= 0 && distance(psn, end) > 0;
}

void SeenRequests::on_request(Duration time, const wire::Packet& packet, std::uint32_t mtu) {
    const Psn psn = packet.bth.psn;
    ++packets;
    if (!begun_) begin(psn);
    const std::int32_t ahead = distance(next_, psn);
    if (ahead >= 0)
        on_new(packet, mtu);
    else
        on_repeat(time, psn);
    rnr_pending = false;
    last_sent = time;
}

void SeenRequests::on_new(const wire::Packet& packet, std::uint32_t mtu) {
    const Psn psn = packet.bth.psn;
    const auto gap = static_cast<std::uint32_t>(distance(next_, psn));
    if (gap > 0 && certain_ && packets > 1) missing += gap;
    if (packet.info->starts_message()) {
        if (open_.size() == kOpenMax) open_.pop_front();
        open_.push_back(announced_by(packet));
    }
    std::uint32_t span = 1;
    certain_ = true;
    if (packet.info->verb == wire::Verb::ReadRequest) {
        const std::uint32_t length = packet.reth().length;
        certain_ = mtu != 0;
        if (certain_) span = std::max(1u, length / mtu + (length % mtu != 0 ? 1 : 0));
    }
    next_ = psn + span;
}

void SeenRequests::on_repeat(Duration time, Psn psn) {
    ++repeated;
    if (distance(first_, psn) < 0) {  // From before the capture began.
        first_ = psn;
        if (!progressed) unacked_ = psn;
    }
    if (distance(unacked_, psn) < 0) {
        ++repeated_answered;
        answered_open = true;
        return;
    }
    if (psn != unacked_) return;
    ++rounds;
    longest_pause = std::max(longest_pause, time - last_sent);
}

void SeenRequests::acknowledge(Psn next) {
    if (distance(unacked_, next) <= 0) return;
    unacked_ = next;
    progressed = true;
    rounds = rnr_row = 0;
    rnr_pending = false;
    longest_pause = {};
    // A message that is acknowledged in part stays; the next one tells that it is done.
    while (open_.size() > 1 && distance(open_[1].psn, unacked_) >= 0) open_.pop_front();
}

std::optional<SeenRequest> SeenRequests::request_at(Psn psn) const {
    std::optional<SeenRequest> out;
    for (const SeenRequest& request : open_)
        if (distance(request.psn, psn) >= 0) out = request;
    return out;
}

std::uint32_t SeenRequests::reads_open() const {
    std::uint32_t count = 0;
    for (const SeenRequest& request : open_)
        if (distance(unacked_, request.psn) >= 0 && asks_for_data(request.verb)) ++count;
    return count;
}

void SeenRequests::on_nak(Duration time, Psn psn, wire::Syndrome syndrome) {
    const bool was_sent = distance(first_, psn) >= 0 && (distance(psn, next_) > 0 || !certain_);
    if (syndrome.nak_code() == wire::NakCode::SequenceError) {
        ++sequence_naks;
        // The next one may be asked for: what was lost is then not in the capture.
        if (was_sent || psn == next_)
            acknowledge(psn);
        else if (!stray_expectation) {
            stray_expectation = psn;
            stray_by_nak = true;
        }
        return;
    }
    if (refusal) return;
    refusal = Refusal{syndrome, psn, time, request_at(psn), reads_open()};
}

void SeenRequests::on_answer(Duration time, const wire::Packet& packet) {
    const Psn psn = packet.bth.psn;
    if (!begun_) return;
    ++answers;
    answered_open = false;
    const wire::Syndrome syndrome =
        packet.info->has(wire::Header::Aeth) ? packet.aeth().syndrome : wire::Syndrome::ack(31);
    if (syndrome.kind() == wire::Syndrome::Kind::Nak) return on_nak(time, psn, syndrome);
    if (syndrome.kind() == wire::Syndrome::Kind::Rnr) {
        if (distance(unacked_, psn) > 0 && distance(psn, next_) > 0) acknowledge(psn);
        ++rnr_naks;
        ++rnr_row;
        rounds = 0;  // The peer is there.
        rnr_pending = true;
        rnr_wait_us = wire::rnr_timer_us(syndrome.value());
        rnr_psn = psn;
        last_rnr = time;
        return;
    }
    if (syndrome.kind() != wire::Syndrome::Kind::Ack) return;
    const std::int32_t ahead = distance(next_, psn);
    if (ahead >= 0 && certain_) {
        if (!progressed && !stray_expectation) stray_expectation = psn + 1;
        return;
    }
    if (ahead < kFar) acknowledge(psn + 1);
}

}  // namespace feroce::cli
