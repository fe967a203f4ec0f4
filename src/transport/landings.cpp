#include "transport/landings.hpp"

#include <algorithm>
#include <utility>

#include "base/shortage.hpp"
#include "transport/memory_names.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::transport {

bool Landings::has_room(std::size_t bytes) const {
    return bytes_ + bytes + kOverhead <= kBytesMax && pieces_.size() < kPiecesMax;
}

// Receives are different buffers, but one that a message broke off into is filled again.
bool Landings::Piece::holds_up(const Piece& later) const {
    if (message == later.message || landed()) return false;
    if (is_write && later.is_write) return begin < later.end && later.begin < end;
    return is_write != later.is_write || broken;
}

bool Landings::must_wait(const Piece& piece) const {
    for (const Piece& one : pieces_) {
        if (&one == &piece) return false;
        if (one.holds_up(piece)) return true;
    }
    return false;
}

Landings::Piece& Landings::add_piece(const Target& target, std::uint64_t offset,
                                     std::uint32_t capacity) {
    Piece piece;
    piece.list = target.list;
    piece.offset = offset;
    piece.capacity = capacity;
    piece.message = message_;
    piece.psn = target.psn;
    piece.is_write = target.is_write;
    if (capacity > 0) piece.fault = make_group(qp_, piece.list, offset, capacity, piece.group);
    if (piece.fault == mem::Fault::None && capacity > 0 && target.is_write) {
        const mem::Sge& sge = target.list.entries.front();
        const mem::Lookup place =
            qp_.services().memory.remote(target.list.pd, qp_.qpn(), RKey{sge.lkey.raw},
                                         sge.address + offset, 1, target.list.need);
        piece.begin = reinterpret_cast<std::uintptr_t>(place.slice.base);
        piece.end = piece.begin + capacity;
    }
    pieces_.push_back(std::move(piece));
    bytes_ += pieces_.back().cost();
    return pieces_.back();
}

// The piece that the next byte of the message belongs to.
Landings::Piece& Landings::open_piece(const Target& target, std::uint64_t offset) {
    if (!pieces_.empty() && pieces_.back().message == message_) {
        Piece& last = pieces_.back();
        if (!last.closed && last.offset + last.filled == offset) return last;
        close_piece(last);
    }
    return add_piece(target, offset,
                     static_cast<std::uint32_t>(std::min<std::uint64_t>(mem::FarMemory::kPieceBytes,
                                                                        target.length - offset)));
}

bool Landings::add(const Target& target, std::uint64_t offset, ByteView bytes) {
    return with_memory([&] {
        while (!bytes.empty()) {
            Piece& piece = open_piece(target, offset);
            piece.psn = target.psn;
            const std::size_t size =
                std::min<std::size_t>(bytes.size(), piece.capacity - piece.filled);
            if (piece.group != nullptr)
                std::copy_n(
                    bytes.begin(), size,
                    piece.group->bytes().begin() + static_cast<std::ptrdiff_t>(piece.filled));
            piece.filled += static_cast<std::uint32_t>(size);
            offset += size;
            bytes = bytes.subspan(size);
            if (piece.filled == piece.capacity) close_piece(piece);
        }
    });
}

bool Landings::end(const Target& target, const std::optional<Completion>& receive) {
    const bool has_piece = !pieces_.empty() && pieces_.back().message == message_;
    // All before it may have landed; and a message may have no bytes.
    if (!has_piece && !with_memory([&] { add_piece(target, 0, 0); })) return false;
    Piece& last = pieces_.back();
    close_piece(last);
    last.ends = true;
    last.receive = receive;
    ++message_;
    return true;
}

void Landings::close_piece(Piece& piece) {
    if (std::exchange(piece.closed, true)) return;
    if (!must_wait(piece)) return start_piece(piece);
    ++waiting_;
}

void Landings::start_piece(Piece& piece) {
    piece.started = true;
    if (piece.group == nullptr) return;
    mem::Fault fault = mem::Fault::None;
    if (!with_memory([&] {
            fault = start_deliver(qp_, piece.list, piece.offset, piece.filled, piece.group);
        }))
        fault = mem::Fault::Unmapped;
    if (fault != mem::Fault::None) piece.fault = fault;
}

void Landings::start_waiting() {
    for (Piece& piece : pieces_) {
        if (waiting_ == 0) return;
        if (!piece.waits() || must_wait(piece)) continue;
        --waiting_;
        start_piece(piece);
    }
}

void Landings::break_off() {
    std::erase_if(pieces_, [this](const Piece& piece) {
        if (piece.message != message_ || piece.started) return false;
        if (piece.waits()) --waiting_;
        bytes_ -= piece.cost();
        return true;
    });
    for (Piece& piece : pieces_) piece.broken = piece.broken || piece.message == message_;
    failed_ = pieces_.empty() ? mem::Fault::None : failed_;
    ++message_;
}

void Landings::pop_front() {
    bytes_ -= pieces_.front().cost();
    pieces_.pop_front();
}

// Host memory is written now.
mem::Fault Landings::finish(Piece& piece) {
    if (piece.broken) return mem::Fault::None;
    if (piece.fault != mem::Fault::None || piece.group == nullptr) return piece.fault;
    mem::Fault fault = mem::Fault::None;
    if (!with_memory([&] {
            fault = finish_deliver(qp_, piece.list, piece.offset, piece.filled, *piece.group);
        }))
        fault = mem::Fault::Unmapped;
    return fault;
}

void Landings::settle(Instant now) {
    while (has_landed()) {
        Piece& front = pieces_.front();
        const mem::Fault fault = finish(front);
        if (failed_ == mem::Fault::None) failed_ = fault;
        if (!front.ends) {
            if (front.broken) failed_ = mem::Fault::None;
            pop_front();
            start_waiting();
            continue;
        }
        const Piece last = std::move(front);
        const mem::Fault outcome = std::exchange(failed_, mem::Fault::None);
        pop_front();
        start_waiting();
        if (outcome != mem::Fault::None && last.receive) return fail(now, last, outcome);
        if (outcome != mem::Fault::None) qp_.services().counters.drop(DropReason::UcAccess);
        if (!last.receive) continue;
        qp_.services().counters.add(Counter::RdmaReceives);
        qp_.complete_receive(*last.receive);
    }
}

// The receive completes in error and the queue pair fails.
void Landings::fail(Instant now, const Piece& last, mem::Fault fault) {
    const bool gone = fault == mem::Fault::Unmapped;
    Reason reason;
    reason.status = last.is_write ? WcStatus::LocalAccessError : WcStatus::LocalProtectionError;
    reason.rule = last.is_write ? (gone ? Rule::RemoteMemoryGone : Rule::RemoteKey)
                                : (gone ? Rule::LocalMemoryGone : Rule::ReceiveKey);
    reason.fault = fault;
    if (reason.rule == Rule::ReceiveKey)
        reason.attempt = first_bad(qp_.services().memory, last.list.pd, last.list.entries,
                                   mem::Access::LocalWrite);
    if (reason.rule == Rule::RemoteKey) {
        const mem::Sge& target = last.list.entries.front();
        reason.attempt = {target.lkey.raw, mem::Access::RemoteWrite, target.address, target.length};
    }
    reason.at_responder = true;
    reason.psn = last.psn;
    reason.wr_id = last.receive->wr_id;
    qp_.fail_receive(now, reason, *last.receive, qp_.init().receive_cq);
}

void Landings::flush(Instant now) {
    for (const Piece& piece : pieces_) {
        if (!piece.receive) continue;
        Completion flushed = qp_.completion_of(now, piece.receive->wr_id);
        flushed.opcode = WcOpcode::Receive;
        flushed.status = WcStatus::FlushError;
        flushed.reason = qp_.first_reason();
        qp_.services().held.push(qp_, *qp_.init().receive_cq, flushed);
    }
}

const char* Landings::check_invariants() const {
    std::size_t bytes = 0, waiting = 0;
    for (const Piece& piece : pieces_) {
        bytes += piece.cost();
        if (piece.waits()) ++waiting;
        if (!piece.closed && &piece != &pieces_.back()) return "a piece was forgotten";
    }
    if (!pieces_.empty() && pieces_.front().waits()) return "a piece waits for nothing";
    if (waiting != waiting_) return "pieces that wait are counted wrong";
    return bytes == bytes_ ? nullptr : "staged bytes are counted wrong";
}

}  // namespace feroce::transport
