// Far memory at the responder. Pieces of messages are put together in staging and copied; what may
// not happen before they are in memory waits: acknowledgements of whole messages, completions,
// refusals, and packets that do anything but add to a piece. See ADR 27.
#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "base/shortage.hpp"
#include "transport/rc/responder.hpp"

namespace feroce::transport::rc {

using wire::NakCode;
using wire::Syndrome;
using wire::Verb;

FarInbound& Responder::far() {
    if (far_work() == nullptr) qp_.far_work().inbound = std::make_unique<FarInbound>();
    return *far_work();
}

bool Responder::has_pieces() const {
    return far_busy_ && !far_work()->pieces.empty();
}

// A whole message is not in memory yet: what would acknowledge it waits. Pieces of one that has not
// ended are waited for by nobody: they may themselves wait for packets.
bool Responder::owes_memory() const {
    return far_busy_ && far_work()->ends > 0;
}

// Up to here a peer may be told that all is well. The packets of a message but the last say nothing
// about memory.
PacketNumber Responder::acknowledge_limit() const {
    if (!has_pieces()) return expected_ - 1;
    if (far_work()->bytes > FarInbound::kPromptMax) return far_work()->pieces.front().first - 1;
    for (const FarInbound::Piece& piece : far_work()->pieces)
        if (piece.ends) return piece.last - 1;
    return expected_ - 1;
}

// All of it again, if all is well: the peer may not have heard.
bool Responder::may_acknowledge() const {
    const PacketNumber limit = acknowledge_limit();
    return limit == expected_ - 1 || acknowledged_ < limit;
}

bool Responder::far_wants_to_send() const {
    if (far_work()->lands()) return true;
    if (!jobs_.empty()) {
        const bool waits = !far_work()->reads.empty() &&
                           far_work()->reads.front().has(jobs_.front().next) &&
                           !far_work()->reads.front().is_over();
        return !waits;
    }
    if (!owes_memory() && (nak_owed_ || verdict_)) return true;
    if (has_pieces()) return ack_owed_ && may_acknowledge();
    return !far_work()->kept.empty() || ack_owed_ || nak_owed_ || verdict_;
}

PacketNumber Responder::end_of(const wire::Packet& packet, PacketNumber number,
                               std::uint32_t packets) const {
    const bool reads = packet.info->verb == Verb::ReadRequest;
    return number + (reads ? read_packets(packet.reth().length) : packets);
}

// True if the packet is seen to: kept, or not wanted.
bool Responder::keep_for_later(const wire::Packet& packet, PacketNumber number,
                               std::uint32_t packets) {
    if (number < expected_) return false;  // A duplicate.
    FarInbound& far = *far_work();
    if (far.kept.empty() && far.pieces.empty()) return false;
    if (far.kept.empty() && number != expected_ && !owes_memory()) return false;
    const PacketNumber next = far.kept.empty() ? expected_ : far.kept_end;
    const bool room = far.has_room(packet);
    if (number == next && far.kept.empty() && room && may_execute(packet)) return false;
    Counters& counters = qp_.services().counters;
    if (number == next && room && with_memory([&] { far.keep(packet, packets); })) {
        far.kept_end = end_of(packet, number, packets);
        far.gap = false;
        return true;
    }
    if (number >= next) {
        counters.add(Counter::OutOfSequenceRequest);
        far.gap = true;  // Said when the kept ones are executed: a NAK acknowledges them.
    }
    counters.drop(DropReason::OutOfSequence);
    return true;
}

// Whether it may go on while pieces are not in memory: it only adds to them. A message that goes on
// is the one with the last piece; no other is begun before all pieces are in memory but a WRITE to
// far memory: if it goes where an earlier one does, only its copy waits (close_piece). A packet
// that does not fit the open message is refused for that: it must not wait for pieces that wait for
// the message's end.
//
// Of a packet that was kept the bytes are counted already. To ask for room again would make it wait
// for an open piece, which waits for it.
bool Responder::may_execute(const wire::Packet& packet) const {
    const FarInbound& far = *far_work();
    if (far.pieces.empty()) return true;
    const Verb verb = packet.info->verb;
    if (message_ != Message::None || !packet.info->starts_message()) return true;
    if (verb != Verb::Write || far.pieces.size() >= FarInbound::kPiecesMax) return false;
    const wire::Reth reth = packet.reth();
    const mem::Lookup found = qp_.services().memory.remote(
        pd_of(packet), qp_.qpn(), reth.rkey, reth.address, reth.length, mem::Access::RemoteWrite);
    return found.fault == mem::Fault::Far;
}

FarList Responder::message_list(const wire::Packet& packet) const {
    if (packet.info->verb == Verb::Write)
        return {pd_of(packet),
                mem::Access::RemoteWrite,
                true,
                {{write_address_, write_length_, LKey{write_rkey_.raw}}}};
    const auto list = receive_.list();
    return {receive_pd_, mem::Access::LocalWrite, false, {list.begin(), list.end()}};
}

// The piece that the next byte of the message belongs to. Null with a fault.
mem::Fault Responder::open_piece(const wire::Packet& packet, std::uint64_t offset,
                                 FarInbound::Piece*& out) {
    FarInbound& far = this->far();
    if (!far.pieces.empty()) {
        FarInbound::Piece& last = far.pieces.back();
        out = &last;
        if (!last.closed && last.offset + last.filled == offset) return mem::Fault::None;
        // A mixed list had host memory in between.
        if (!last.closed)
            if (const mem::Fault fault = close_piece(last); fault != mem::Fault::None) return fault;
    }
    FarInbound::Piece piece;
    piece.is_send = packet.info->verb == Verb::Send;
    piece.list = message_list(packet);
    piece.offset = offset;
    piece.first = expected_;
    // A short message in a long receive needs little staging.
    const std::uint64_t length = !piece.is_send ? write_length_
                                 : packet.info->ends_message()
                                     ? received_bytes_ + packet.payload.size()
                                     : receive_.length;
    piece.capacity = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(mem::FarMemory::kPieceBytes, length - offset));
    const mem::Fault fault = make_group(qp_, piece.list, offset, piece.capacity, piece.group);
    if (fault != mem::Fault::None) return fault;
    if (!piece.is_send) {
        const mem::Lookup place =
            qp_.services().memory.remote(piece.list.pd, qp_.qpn(), write_rkey_,
                                         write_address_ + offset, 1, mem::Access::RemoteWrite);
        piece.begin = reinterpret_cast<std::uintptr_t>(place.slice.base);
        piece.end = piece.begin + piece.capacity;
    }
    const std::size_t cost = piece.cost();
    far.pieces.push_back(std::move(piece));
    far.bytes += cost;
    far_busy_ = true;
    out = &far.pieces.back();
    return mem::Fault::None;
}

// Nothing is added to it any more. Its copy begins, or waits until an earlier one to the same bytes
// is over.
mem::Fault Responder::close_piece(FarInbound::Piece& piece) {
    piece.closed = true;
    if (!far_work()->must_wait(piece)) return start_piece(piece);
    ++far_work()->waiting;
    return mem::Fault::None;
}

mem::Fault Responder::start_piece(FarInbound::Piece& piece) {
    piece.started = true;
    return start_deliver(qp_, piece.list, piece.offset, piece.filled, piece.group);
}

// Those that need not wait any more. One that cannot be started, because its key is gone by now,
// fails when its turn comes; none behind it begins.
void Responder::start_waiting() {
    FarInbound& far = *far_work();
    for (FarInbound::Piece& piece : far.pieces) {
        if (far.waiting == 0 || piece.group->fault != mem::Fault::None) return;
        if (!piece.waits() || far.must_wait(piece)) continue;
        --far.waiting;
        mem::Fault fault = mem::Fault::None;
        if (!with_memory([&] { fault = start_piece(piece); })) fault = mem::Fault::Unmapped;
        if (fault == mem::Fault::None) continue;
        piece.group->fault = fault;
        return;
    }
}

mem::Fault Responder::add_to_pieces(const wire::Packet& packet) {
    ByteView rest = packet.payload;
    std::uint64_t offset = received_bytes_;
    while (!rest.empty()) {
        FarInbound::Piece* piece = nullptr;
        mem::Fault fault = open_piece(packet, offset, piece);
        if (fault != mem::Fault::None) return fault;
        const std::size_t size =
            std::min<std::size_t>(rest.size(), piece->capacity - piece->filled);
        mem::fill_staging(piece->group->bytes().subspan(piece->filled, size), rest.first(size));
        piece->filled += static_cast<std::uint32_t>(size);
        offset += size;
        rest = rest.subspan(size);
        if (piece->filled == piece->capacity) fault = close_piece(*piece);
        if (fault != mem::Fault::None) return fault;
    }
    return mem::Fault::None;
}

// The payload of a SEND or WRITE, some of it to far memory.
mem::Fault Responder::stage(const wire::Packet& packet) {
    if (qp_.services().copies == nullptr) return mem::Fault::Far;
    mem::Fault fault = mem::Fault::None;
    if (!with_memory([&] { fault = add_to_pieces(packet); })) fault = mem::Fault::Unmapped;
    if (fault != mem::Fault::None) drop_message();
    return fault;
}

// The message that is refused now: no piece of it is wanted any more. Those that were started go
// on, and nobody waits for them.
void Responder::drop_message() {
    if (far_work() == nullptr) return;
    while (!far_work()->pieces.empty() && !far_work()->pieces.back().ends) far_work()->drop_piece();
}

Responder::Refusal Responder::refuse_memory(const wire::Packet& packet, mem::Fault fault) {
    if (packet.info->verb == Verb::Send)
        return Refusal{Syndrome::nak(NakCode::RemoteOperational),
                       fault == mem::Fault::Unmapped ? Rule::LocalMemoryGone : Rule::ReceiveKey,
                       WcStatus::LocalProtectionError, fault};
    // Of the receive that an immediate takes.
    const WcStatus status = receive_held_ ? WcStatus::LocalAccessError : WcStatus::Success;
    if (fault != mem::Fault::Unmapped) return refuse_key(packet, fault, status);
    return Refusal{Syndrome::nak(NakCode::RemoteOperational), Rule::RemoteMemoryGone, status,
                   fault};
}

// The last packet of a message is in staging.
Responder::Check Responder::close_message(const wire::Packet& packet) {
    if (!packet.info->ends_message() || !has_pieces()) return {};
    FarInbound::Piece& piece = far_work()->pieces.back();
    if (piece.closed) return {};
    mem::Fault fault = mem::Fault::None;
    if (!with_memory([&] { fault = close_piece(piece); })) fault = mem::Fault::Unmapped;
    if (fault == mem::Fault::None) return {};
    drop_message();
    return refuse_memory(packet, fault);
}

// Its completion leaves with the last piece. `expected_` is past the message.
void Responder::end_far_message(Instant now, const wire::Packet& packet) {
    FarInbound::Piece& piece = far_work()->pieces.back();
    ASSERT(!piece.ends);
    piece.ends = true;
    piece.last = expected_ - 1;
    ++far_work()->ends;
    if (!receive_held_) return;
    piece.completion = completion_of_message(now, packet);
    piece.srq = receive_srq_;
    receive_held_ = false;
    ack_owed_ = true;
}

// Pieces that are in memory, then what waited for them.
void Responder::settle_far(Instant now) {
    FarInbound& far = *far_work();
    while (far.lands()) {
        if (far.pieces.front().completion && qp_.services().held.full_for(qp_)) return;
        if (!finish_piece()) return fail_piece(now);
        far.pop_piece();
        start_waiting();
    }
    const auto works = [this] {
        const QpState state = qp_.state();
        return state == QpState::Rtr || state == QpState::Rts || state == QpState::Sqd;
    };
    // Behind a packet that was refused the kept ones are not expected any more: on_gap() sees to
    // them. If they waited for a piece that itself waits for that packet, nothing would go on.
    while (works() && !is_over() && !far.kept.empty()) {
        const PacketNumber number = expected_.nearest(far.kept.front().packet.bth.psn);
        if (number == expected_ && !may_execute(far.kept.front().packet)) break;
        const FarInbound::Kept next = far.take_kept();
        take_request(now, next.packet, next.packets, number);
    }
    if (!works()) return;
    if (is_over()) far.drop_kept();
    if (far.kept.empty() && !owes_memory() && std::exchange(far.gap, false) && !nak_sent_)
        nak_sent_ = nak_owed_ = true;
    far_busy_ = !far.idle();
}

// False if it could not be delivered.
bool Responder::finish_piece() {
    FarInbound::Piece& piece = far_work()->pieces.front();
    mem::Fault fault = mem::Fault::None;
    if (!with_memory([&] {
            fault = finish_deliver(qp_, piece.list, piece.offset, piece.filled, *piece.group);
        }))
        fault = mem::Fault::Unmapped;
    piece.group->fault = fault;
    if (fault != mem::Fault::None) return false;
    if (!piece.completion) return true;
    receive_srq_ = piece.srq;
    qp_.services().counters.add(Counter::RdmaReceives);
    if (CompletionSink* const cq = receive_source().cq)  // Else its queue is gone, with whom it
        qp_.services().held.hold(qp_, piece.last, *cq, *piece.completion);  // would be told.
    return true;
}

// The message of the oldest piece fails, and with it the queue pair. Its last packet was not
// acknowledged, so that is the one to refuse; if it has not come, the next one is.
void Responder::fail_piece(Instant now) {
    FarInbound& far = *far_work();
    const mem::Fault fault = far.pieces.front().group->fault;
    const bool is_send = far.pieces.front().is_send;
    const mem::Sge target = far.pieces.front().list.entries.front();
    const auto end = std::find_if(far.pieces.begin(), far.pieces.end(),
                                  [](const FarInbound::Piece& piece) { return piece.ends; });
    if (end != far.pieces.end()) expected_ = end->last;
    if (is_send && end != far.pieces.end()) {
        receive_held_ = true;
        receive_.wr_id = end->completion->wr_id;
        receive_.set_list(end->list.entries);
        receive_srq_ = end->srq;
        end->completion.reset();
    }
    write_address_ = target.address;
    write_length_ = target.length;
    write_rkey_ = RKey{target.lkey.raw};
    drop_far();
    const bool gone = fault == mem::Fault::Unmapped;
    if (is_send)
        return refuse(now, {Syndrome::nak(NakCode::RemoteOperational),
                            gone ? Rule::LocalMemoryGone : Rule::ReceiveKey,
                            WcStatus::LocalProtectionError, fault});
    Refusal refusal{Syndrome::nak(gone ? NakCode::RemoteOperational : NakCode::RemoteAccess),
                    gone ? Rule::RemoteMemoryGone : Rule::RemoteKey, WcStatus::Success, fault};
    refusal.need = mem::Access::RemoteWrite;
    refuse(now, refusal);
}

// Copies for the answers that come next, in their order.
void Responder::plan_reads() {
    FarInbound& far = this->far();
    std::size_t planned = 0;
    for (std::size_t i = 0; i < jobs_.size() && planned < FarInbound::kReadsAhead; ++i) {
        const Job& job = jobs_[i];
        if (job.kind == JobKind::Read && job.left > 0) planned = plan_read(job, planned);
    }
    far_busy_ = !far.idle();
}

// `planned`: how many copies the answers before it use. Returns how many there are with it.
std::size_t Responder::plan_read(const Job& job, std::size_t planned) {
    FarInbound& far = *far_work();
    const std::uint32_t mtu = qp_.attributes().path_mtu;
    std::uint64_t done = 0;
    while (done < job.left && planned < FarInbound::kReadsAhead) {
        const PacketNumber number = job.next + done / mtu;
        if (planned < far.reads.size()) {
            if (!far.reads[planned].has(number)) break;  // This READ is of host memory.
            done += std::uint64_t{far.reads[planned].end() - number} * mtu;
        } else {
            const auto size = static_cast<std::uint32_t>(
                std::min<std::uint64_t>(mem::FarMemory::kPieceBytes, job.left - done));
            if (!begin_read(job, done, size)) break;
            done += size;
        }
        ++planned;
    }
    return planned;
}

// False if that memory is not far.
bool Responder::begin_read(const Job& job, std::uint64_t offset, std::uint32_t size) {
    const mem::Lookup found = qp_.services().memory.remote(
        job.pd, qp_.qpn(), job.rkey, job.value + offset, size, mem::Access::RemoteRead);
    if (found.fault != mem::Fault::Far) return false;
    const FarList list{
        job.pd, mem::Access::RemoteRead, true, {{job.value + offset, size, LKey{job.rkey.raw}}}};
    FarInbound::Read read;
    read.first = job.next + offset / qp_.attributes().path_mtu;
    read.packets = read_packets(size);
    read.fault = make_group(qp_, list, 0, size, read.group);
    if (read.fault == mem::Fault::None) read.fault = start_gather(qp_, list, 0, size, read.group);
    if (read.fault != mem::Fault::None) read.group = nullptr;
    far_work()->reads.push_back(std::move(read));
    return true;
}

// What of the READ's next packets lies in staging; `packets` becomes as many as do. False: it is
// still to come.
bool Responder::staged_read(const Job& job, std::uint32_t& packets, mem::Fault& fault,
                            ByteView& out) {
    if (qp_.services().copies == nullptr) return true;
    fault = mem::Fault::Unmapped;
    // Answers leave in order, so the first copy is for this one. If it is not, a region became host
    // memory or ceased to be while it was read.
    if (far_work() != nullptr && !far_work()->reads.empty() &&
        !far_work()->reads.front().has(job.next))
        drop_staged_reads();
    if (!with_memory([this] { plan_reads(); })) return true;
    // Another thread may have taken the region away since the caller looked.
    if (far_work()->reads.empty() || !far_work()->reads.front().has(job.next)) return true;
    const FarInbound::Read& read = far_work()->reads.front();
    if (!read.is_over()) return false;
    fault = read.group == nullptr ? read.fault : read.group->fault;
    if (fault != mem::Fault::None) return true;
    packets = std::min(packets, static_cast<std::uint32_t>(read.end() - job.next));
    out = read.group->bytes().subspan((job.next - read.first) *
                                      std::size_t{qp_.attributes().path_mtu});
    return true;
}

void Responder::end_staged_read(PacketNumber next) {
    if (far_work()->reads.front().end() == next) far_work()->reads.pop_front();
    far_busy_ = !far_work()->idle();
}

void Responder::drop_staged_reads() {
    far_work()->reads.clear();
    far_busy_ = !far_work()->idle();
}

std::uint32_t Responder::messages_in_memory() const {
    const std::uint32_t open = far_busy_ ? far_work()->ends : 0;
    return (msn_ - open) & 0xff'ffff;
}

void Responder::drop_far() {
    if (far_work() == nullptr) return;
    far_work()->kept.clear();
    far_work()->reads.clear();
    msn_ = (msn_ - far_work()->ends) & 0xff'ffff;
    far_work()->lost = std::move(far_work()->pieces);
    far_work()->pieces.clear();
    far_work()->bytes = 0;
    far_work()->ends = far_work()->waiting = 0;
}

void Responder::stop_far(Instant now) {
    if (far_work() == nullptr) return;
    if (qp_.state() == QpState::Err) {
        flush_pieces(now, far_work()->lost);
        flush_pieces(now, far_work()->pieces);
    }
    qp_.far_work().inbound.reset();
    far_busy_ = false;
}

void Responder::flush_pieces(Instant now, const std::deque<FarInbound::Piece>& pieces) {
    for (const FarInbound::Piece& piece : pieces) {
        if (!piece.completion) continue;
        receive_srq_ = piece.srq;
        CompletionSink* const cq = receive_source().cq;
        if (cq == nullptr) continue;
        Completion flushed = qp_.completion_of(now, piece.completion->wr_id);
        flushed.opcode = WcOpcode::Receive;
        flushed.source_qpn = piece.completion->source_qpn;
        flushed.status = WcStatus::FlushError;
        flushed.reason = qp_.first_reason();
        qp_.services().held.push(qp_, *cq, flushed);
    }
}

}  // namespace feroce::transport::rc
