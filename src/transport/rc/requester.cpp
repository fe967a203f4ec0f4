#include "transport/rc/requester.hpp"

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"
#include "base/ring_tools.hpp"
#include "transport/rc/recovery.hpp"

namespace feroce::transport::rc {

namespace {

// What a packet costs a receiver's buffer beside its payload (socket buffer bookkeeping).
constexpr std::uint32_t kPacketOverhead = 512;
// The first message has number 0 on the wire; here as many lie before it as a peer can name.
constexpr std::uint64_t kFirstSequence = std::uint64_t{1} << 24;

bool takes_receive(SendOp op) {
    return op == SendOp::Send || op == SendOp::SendImmediate || op == SendOp::SendInvalidate ||
           op == SendOp::WriteImmediate;
}

bool is_write(SendOp op) {
    return op == SendOp::Write || op == SendOp::WriteImmediate;
}

wire::Opcode last_opcode(SendOp op) {
    switch (op) {
        case SendOp::SendImmediate:
            return wire::Opcode::RcSendLastImmediate;
        case SendOp::SendInvalidate:
            return wire::Opcode::RcSendLastInvalidate;
        case SendOp::Write:
            return wire::Opcode::RcWriteLast;
        case SendOp::WriteImmediate:
            return wire::Opcode::RcWriteLastImmediate;
        default:
            return wire::Opcode::RcSendLast;
    }
}

wire::Opcode only_opcode(SendOp op) {
    switch (op) {
        case SendOp::SendImmediate:
            return wire::Opcode::RcSendOnlyImmediate;
        case SendOp::SendInvalidate:
            return wire::Opcode::RcSendOnlyInvalidate;
        case SendOp::Write:
            return wire::Opcode::RcWriteOnly;
        case SendOp::WriteImmediate:
            return wire::Opcode::RcWriteOnlyImmediate;
        case SendOp::CompareSwap:
            return wire::Opcode::RcCompareSwap;
        case SendOp::FetchAdd:
            return wire::Opcode::RcFetchAdd;
        case SendOp::AtomicWrite:
            return wire::Opcode::RcAtomicWrite;
        case SendOp::Flush:
            return wire::Opcode::RcFlush;
        default:
            return wire::Opcode::RcSendOnly;
    }
}

wire::Opcode message_opcode(SendOp op, bool first, bool last) {
    if (first && last) return only_opcode(op);
    if (last) return last_opcode(op);
    if (first) return is_write(op) ? wire::Opcode::RcWriteFirst : wire::Opcode::RcSendFirst;
    return is_write(op) ? wire::Opcode::RcWriteMiddle : wire::Opcode::RcSendMiddle;
}

}  // namespace

Requester::Requester(QueuePair& qp, wire::Service service) : qp_(qp), service_(service) {}

void Requester::start() {
    flight_.una = flight_.fresh = flight_.sent_end = flight_.taken =
        PacketNumber::first(qp_.attributes().send_psn);
    position_.index = qp_.send_queue().head();
    position_.packet = 0;
    retries_left_ = qp_.attributes().retry_count;
    rnr_left_ = qp_.attributes().rnr_retry;
    flight_.asked.clear();
    credits_.next = credits_.limit = kFirstSequence;
    credits_.known = false;
    has_carried_full_ = false;
    if (qp_.recovery() != nullptr) qp_.recovery()->start_requester();
}

void Requester::reserve() {
    // Several times as many may be out if some are answered: see may_ask().
    constexpr std::size_t kTimes = 4;
    const bool keeps = qp_.services().hold_budget != nullptr;
    const std::size_t depth = qp_.attributes().read_atomic_max * (keeps ? kTimes : 1);
    if (flight_.asked.capacity() < depth) regrow(flight_.asked, depth);
}

void Requester::stop() {
    stop_far();
    halt();
}

void Requester::halt() {
    if (qp_.window() != nullptr) qp_.window()->on_forgotten(flight_.bytes);
    flight_.bytes = 0;
    forget_asked();
    retry_deadline_ = rnr_until_ = kNever;
    probe_ = Probe{};
    sample_.stop();
    gap_reported_ = false;
    drop_board();
    drop_held();
    flight_.since_ack_request = 0;
    if (qp_.state() == QpState::Reset)
        flight_.una = flight_.fresh = flight_.sent_end = flight_.taken = PacketNumber();
}

bool Requester::idle() const {
    return flight_.una == flight_.sent_end &&
           (qp_.send_queue().empty() || !qp_.send_queue().at(qp_.send_queue().head()).numbered);
}

// A WRITE of no bytes under the number of the last packet that was acknowledged, or the one before
// the first if none was ever sent: a duplicate, which a responder acknowledges again and does not
// execute (IBTA 9.7.5.1.4). Should a peer take it for new, it needs no receive and touches nothing.
// XRC requests name a receive queue of the peer's, so there one must have been sent: a peer may
// look up the queue before it looks at the number, and would refuse one that it never had.
bool Requester::ask_peer() const {
    if (!qp_.send_queue().empty() || flight_.una != flight_.sent_end) return false;
    const bool xrc = service_ == wire::Service::Xrc;
    // The kernel's rxe, before it has got anything, acknowledges 0xffffff whatever the PSNs are.
    // That must not be a packet which we may have in flight when it comes.
    constexpr std::uint32_t kInFlightMax = 4096;
    const Psn first = qp_.attributes().send_psn;
    if (flight_.una == PacketNumber::first(first) &&
        (xrc || Psn::kCount - first.raw() <= kInFlightMax))
        return false;
    PacketSpec spec;
    spec.opcode = wire::opcode_of(service_, wire::Opcode::RcWriteOnly);
    if (xrc) spec.extensions.xrceth.srq = qp_.send_queue().last_remote_srq();
    spec.destination = qp_.attributes().destination_qpn;
    spec.psn = (flight_.una - 1).psn();
    spec.ack_request = true;
    append_packet(qp_, spec);
    return true;
}

bool Requester::wants_to_send(Instant now) const {
    if (probe_.due) return true;
    if (sends_again_) [[unlikely]]
        return may_send_missing(now);
    return may_send_next(now) && window_open(now);
}

bool Requester::waits_for_window(Instant now) const {
    if (sends_again_) [[unlikely]]
        return !may_send_missing(now) && !asks_too_much();
    return may_send_next(now) && !window_open(now);
}

bool Requester::window_open(Instant now) const {
    const SendOp op = qp_.send_queue().at(position_.index).op;
    if (is_local(op)) return true;
    if (needs_response(op)) return qp_.window()->may_ask(now);
    return qp_.window()->may_send(now) || runs_ahead();
}

// Not so what is answered: answers fill the peer's ring, of which we do not know what is unread.
bool Requester::runs_ahead() const {
    const SendWindow& window = *qp_.window();
    if (!window.may_run_ahead()) return false;
    const auto unread = qp_.services().transmit.unread(qp_.attributes().destination_qpn);
    return unread && window.may_run_ahead(unread->bytes + unread->packets * kPacketOverhead);
}

bool Requester::may_send_next(Instant now) const {
    const QpState state = qp_.state();
    if (state != QpState::Rts && state != QpState::Sqd) return false;
    if (position_.index == qp_.send_queue().tail()) return false;
    if (rnr_until_ != kNever && now < rnr_until_) return false;
    if (far_gathers_ || tests_peer_ || is_failing()) [[unlikely]]
        return false;
    const SendWqe& wqe = qp_.send_queue().at(position_.index);
    if (wqe.fault != mem::Fault::None) return false;
    if (state == QpState::Sqd && !wqe.numbered) return false;  // Finish what was begun, no more.
    if (has_board_ && is_full()) [[unlikely]]
        return false;
    return may_start(wqe);
}

bool Requester::may_start(const SendWqe& wqe) const {
    const SendOp op = wqe.op;
    if (wqe.fence && position_.packet == 0 && (!flight_.asked.empty() || far_lands_)) return false;
    // A bind or an invalidation takes effect when all before it are done, fence or not: the peer
    // may still be using the old key.
    if (is_local(op)) return wqe.executed || position_.index == qp_.send_queue().head();
    if (needs_response(op)) return may_ask(wqe) && (!far_lands_ || may_land_more());
    return position_.packet > 0 || within_credits(wqe);
}

// IBTA 9.7.7.2: beyond the credits one message may go out while none is outstanding, as a probe.
bool Requester::within_credits(const SendWqe& wqe) const {
    if (!credits_.known || !takes_receive(wqe.op)) return true;
    const std::uint64_t sequence =
        wqe.numbered ? widen(credits_.next, wqe.send_sequence) : credits_.next;
    return sequence < credits_.limit || flight_.una == position_number();
}

void Requester::report(Progress& out) const {
    // After a failure the queue is flushed and the position means nothing.
    const SendQueue& queue = qp_.send_queue();
    const bool has_position = position_.index >= queue.head() && position_.index <= queue.tail();
    out.next = (has_position ? position_number() : flight_.fresh).psn();
    out.unacknowledged = flight_.una.psn();
    out.in_flight_bytes = flight_.bytes;
    if (credits_.known)
        out.credits =
            static_cast<std::int32_t>(credits_.limit - std::min(credits_.limit, credits_.next));
    out.retries_left = retries_left_;
    out.rnr_retries_left = rnr_left_;
}

PacketNumber Requester::position_number() const {
    if (position_.index == qp_.send_queue().tail()) return flight_.fresh;
    const SendWqe& wqe = qp_.send_queue().at(position_.index);
    return wqe.numbered ? wqe.first_packet + position_.packet : flight_.fresh;
}

// It was sent and is not acknowledged. Most are near the head.
std::uint64_t Requester::index_of(PacketNumber number) const {
    const SendQueue& queue = qp_.send_queue();
    const auto is_behind = [&](std::uint64_t i) {
        return queue.at(i).numbered && queue.at(i).end() <= number;
    };
    std::uint64_t low = queue.head(), step = 1;
    while (queue.tail() - low > step && is_behind(low + step - 1)) {
        low += step;
        step *= 2;
    }
    std::uint64_t high = std::min(low + step, queue.tail()) - 1;
    while (low < high) {
        const std::uint64_t middle = (low + high) / 2;
        if (is_behind(middle))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

std::uint32_t Requester::packets_of(const SendWqe& wqe) const {
    if (is_local(wqe.op)) return 0;
    if (needs_response(wqe.op) && wqe.op != SendOp::Read) return 1;
    return packets_for(wqe.length, qp_.attributes().path_mtu);
}

void Requester::number(SendWqe& wqe) {
    if (wqe.numbered) return;
    wqe.numbered = true;
    wqe.first_packet = flight_.fresh;
    wqe.packets = packets_of(wqe);
    flight_.fresh = flight_.fresh + wqe.packets;
    if (wqe.packets == 0) return;
    // The responder counts requests on the wire, and a READ is one for each of its pieces.
    wqe.send_sequence = static_cast<std::uint32_t>(credits_.next);
    if (wqe.op == SendOp::Read) wqe.operand = read_piece_packets(wqe.packets);
    credits_.next += wqe.op != SendOp::Read ? 1 : (wqe.packets + wqe.operand - 1) / wqe.operand;
}

std::uint32_t Requester::cost(const SendWqe& wqe, std::uint64_t from, std::uint64_t to) const {
    const std::uint64_t mtu = qp_.attributes().path_mtu;
    const std::uint64_t begin = std::min<std::uint64_t>(wqe.length, from * mtu);
    const std::uint64_t end = std::min<std::uint64_t>(wqe.length, to * mtu);
    return static_cast<std::uint32_t>(end - begin + (to - from) * kPacketOverhead);
}

void Requester::pump(Instant now, std::uint32_t packets_max) {
    if (far_gathers_) [[unlikely]]
        gather_more();
    for (std::uint32_t i = 0; i < packets_max && wants_to_send(now); ++i) {
        position_.ends_turn = i + 1 == packets_max;
        const bool sent = probe_.due     ? send_probe(now)
                          : sends_again_ ? send_missing(now)
                                         : send_next(now);
        if (!sent) return;
    }
}

// What is in flight stays so, and the position stays where it is.
bool Requester::send_probe(Instant now) {
    const Position before = position_;
    const PacketNumber end = position_number();
    seek_unanswered();
    probe_.due = false;
    const bool of_message = !needs_response(qp_.send_queue().at(position_.index).op);
    if (has_board_ && !of_message) {
        position_ = before;
        probe_.repeated = 1;
        lose_oldest_answer(now);
        return has_board_ && send_missing(now);  // It may have spent the last retry.
    }
    // Of a peer that keeps some that follow a list tells more.
    probe_.of_message = of_message && !(has_board_ && qp_.recovery()->board->keeps_any());
    probe_.run = static_cast<std::uint8_t>(of_message ? run_until(end) : 1);
    probe_.repeated = std::max(probe_.repeated, probe_.run);
    if (qp_.recovery() != nullptr) qp_.recovery()->repeated_at = now;
    probe_.sending = true;
    for (bool sent = true; sent && probe_.run > 0; --probe_.run) sent = send_next(now);
    probe_.run = 1;
    // It failed, or waits for far memory and starts again.
    if (!probe_.sending || qp_.state() == QpState::Err || is_failing()) return false;
    probe_.sending = false;
    position_ = before;
    return true;
}

// How many packets a repair sends: of messages only, and none that is not in flight.
std::uint32_t Requester::run_until(PacketNumber end) const {
    const SendQueue& queue = qp_.send_queue();
    const PacketNumber begin = position_number();
    const PacketNumber limit = std::min(end, begin + probe_.run);
    PacketNumber to = begin;
    for (std::uint64_t i = position_.index; to < limit; ++i) {
        if (needs_response(queue.at(i).op) || is_local(queue.at(i).op)) break;
        to = std::min(queue.at(i).end(), limit);
    }
    return static_cast<std::uint32_t>(to - begin);
}

bool Requester::send_next(Instant now) {
    rnr_until_ = kNever;  // Its time is over, or we would not be here.
    SendWqe& wqe = qp_.send_queue().at(position_.index);
    number(wqe);
    switch (wqe.op) {
        case SendOp::LocalInvalidate:
        case SendOp::BindWindow:
            return run_local(now, wqe);
        case SendOp::Read:
            return send_read(now, wqe);
        case SendOp::CompareSwap:
        case SendOp::FetchAdd:
        case SendOp::AtomicWrite:
        case SendOp::Flush:
            return send_single(now, wqe);
        default:
            return send_message_packet(now, wqe);
    }
}

bool Requester::send_message_packet(Instant now, SendWqe& wqe) {
    // A probe is one packet, so that its answer says what is lost: see rest_is_lost().
    const std::uint32_t packets =
        probe_.sending ? 1 : packets_at_once(qp_, wqe.packets - position_.packet);
    const std::uint32_t end = position_.packet + packets;
    const bool first = position_.packet == 0;
    const bool last = end == wqe.packets;
    const std::uint64_t mtu = qp_.attributes().path_mtu;
    const std::uint64_t offset = position_.packet * mtu;
    PacketSpec spec;
    spec.opcode = wire::opcode_of(service_, message_opcode(wqe.op, first, last));
    spec.payload_size = static_cast<std::size_t>(std::min(packets * mtu, wqe.length - offset));
    spec.packets = packets;
    spec.solicited = last && wqe.solicited;
    spec.ack_request = wants_ack(now, last, cost(wqe, position_.packet, end));
    spec.extensions.reth = {wqe.remote_address, wqe.rkey, wqe.length};
    spec.extensions.immediate = wqe.operand;
    spec.extensions.invalidate = RKey{wqe.operand};
    return transmit(now, wqe, spec, packets);
}

bool Requester::send_single(Instant now, SendWqe& wqe) {
    PacketSpec spec;
    spec.opcode = wire::opcode_of(service_, only_opcode(wqe.op));
    spec.ack_request = true;
    if (wqe.op == SendOp::CompareSwap) {
        const AtomicOperands& operands = qp_.send_queue().atomic(position_.index);
        spec.extensions.atomic = {wqe.remote_address, wqe.rkey, operands.swap,
                                  operands.compare_add};
    } else if (wqe.op == SendOp::FetchAdd) {
        const std::uint64_t add = qp_.send_queue().atomic(position_.index).compare_add;
        spec.extensions.atomic = {wqe.remote_address, wqe.rkey, add, 0};
    }
    spec.extensions.reth = {wqe.remote_address, wqe.rkey, wqe.length};
    spec.extensions.feth.placement = wqe.operand & 0xf;
    spec.extensions.feth.selectivity = wqe.operand >> 4 & 3;
    if (wqe.op == SendOp::AtomicWrite) {
        spec.extensions.reth.length = 8;
        spec.payload_size = 8;
    }
    return transmit(now, wqe, spec, 1);
}

bool Requester::wants_ack(Instant now, bool last, std::uint32_t packet_cost) {
    flight_.since_ack_request += packet_cost;
    const SendWindow& window = *qp_.window();
    // The window must hear of it four times a round, and whenever this packet closes it, more
    // often on a long path, where the line would be idle for what was not acknowledged yet: then
    // some queue pair is always about to be answered, however many share the window. Of those that
    // share it, none leaves a turn without having asked: its next one may be far.
    const bool ends_turn =
        window.is_shared() && (position_.ends_turn || window.closes_with(now, packet_cost));
    const bool asks = last || ends_turn || (probe_.sending && probe_.run == 1) ||
                      flight_.since_ack_request >= window.size() / (window.is_far() ? 32 : 4) ||
                      window.available() <= packet_cost;
    if (asks) flight_.since_ack_request = 0;
    return asks;
}

void Requester::count_resent() {
    Counters& counters = qp_.services().counters;
    counters.add(Counter::Retransmitted);
    counters.add(probe_.sending ? probe_.cause : position_.resend_cause);
}

// Appends the packet, fills it, and accounts for it. `packets` is how many PSNs it uses: more than
// one for a READ request, whose responses own the rest, and for a wide packet.
bool Requester::transmit(Instant now, SendWqe& wqe, PacketSpec& spec, std::uint32_t packets) {
    Services& services = qp_.services();
    spec.destination = qp_.attributes().destination_qpn;
    const PacketNumber number = wqe.first_packet + position_.packet;
    spec.psn = number.psn();
    if (service_ == wire::Service::Xrc)
        spec.extensions.xrceth.srq = qp_.send_queue().remote_srq(position_.index);
    const ByteSpan payload = append_packet(qp_, spec);
    mem::Fault fault = mem::Fault::None;
    if (wqe.op == SendOp::AtomicWrite) {
        // Eight bytes as they shall stand in memory, not a number: no byte order.
        std::memcpy(payload.data(), &qp_.send_queue().atomic(position_.index).compare_add, 8);
    } else if (!payload.empty()) {
        const std::uint64_t offset = std::uint64_t{position_.packet} * qp_.attributes().path_mtu;
        fault = gather_payload(qp_, position_.index, offset, payload);
        if (fault == mem::Fault::Far) [[unlikely]]
            fault = gather_far(offset, payload);
    }
    if (fault != mem::Fault::None) {
        services.transmit.retract(wire::packet_size(spec.opcode, spec.payload_size));
        if (fault == mem::Fault::Far && services.copies != nullptr) {
            wait_for_source();
            return false;
        }
        wqe.fault = fault;
        fail_if_faulty_head(now);
        return false;
    }
    const std::uint32_t bytes = cost(wqe, position_.packet, position_.packet + packets);
    const bool resent = number < flight_.sent_end;
    if (resent) count_resent();
    if (probe_.sending) {
        advance_position(wqe, packets);
        arm(now);
        return true;
    }
    if (needs_response(wqe.op)) flight_.asked.push({number + packets});
    if (!sample_.runs() && !resent && spec.ack_request) {
        sample_.packet = number;
        sample_.sent = now;
    }
    flight_.bytes += bytes;
    qp_.window()->on_sent(now, bytes);
    advance_position(wqe, packets);
    if (probe_.deadline == kNever) arm(now);
    return true;
}

void Requester::advance_position(const SendWqe& wqe, std::uint32_t packets) {
    position_.packet += packets;
    flight_.sent_end = std::max(flight_.sent_end, wqe.first_packet + position_.packet);
    if (position_.packet >= wqe.packets) {
        ++position_.index;
        position_.packet = 0;
    }
}

bool Requester::run_local(Instant now, SendWqe& wqe) {
    if (!wqe.executed && !execute_once(now, wqe)) return false;
    advance_position(wqe, 0);
    retire_finished(now);
    return true;
}

}  // namespace feroce::transport::rc
