// Recovery: what a reliable connection remembers of losses. Made at the first one; a connection
// that loses nothing has none. See ADR 34 for the rules.
#pragma once

#include <cstdint>
#include <memory>

#include "base/packet_number.hpp"
#include "base/time.hpp"
#include "transport/rc/gap_list.hpp"
#include "transport/rc/out_of_order_store.hpp"
#include "transport/rc/scoreboard.hpp"

namespace feroce::transport::rc {

// What a requester believes of its peer. It learns it from the answer to the first packet that it
// repeats alone: a peer that keeps what follows a gap acknowledges more than that packet, one that
// goes back acknowledges no more.
class PeerKind {
public:
    bool is_known() const { return kind_ != Kind::Unknown; }
    bool keeps() const { return kind_ == Kind::Keeps; }
    // To be asked for every loss: whether the missing packet alone should be sent again. A peer
    // that seemed to go back is asked again now and then, ever more rarely: it may only have had no
    // memory to keep anything.
    bool may_keep() {
        if (kind_ != Kind::GoesBack || --losses_left_ > 0) return kind_ != Kind::GoesBack;
        kind_ = Kind::Unknown;
        return true;
    }
    void note_kept() { kind_ = Kind::Keeps; }
    void note_went_back() {
        kind_ = Kind::GoesBack;
        losses_left_ = patience_;
        if (patience_ < kPatienceMax) patience_ *= 2;
    }

private:
    enum class Kind : std::uint8_t { Unknown, Keeps, GoesBack };
    static constexpr std::uint32_t kPatienceMax = 1 << 16;

    Kind kind_ = Kind::Unknown;
    std::uint32_t patience_ = 16;
    std::uint32_t losses_left_ = 0;
};

struct Recovery {
    explicit Recovery(HoldBudget& budget) : requests(budget), responses(budget) {}

    // The responder's: requests behind the one that is missing, and those that were executed last.
    OutOfOrderStore requests;
    PacketNumber executed_begin;
    PacketNumber executed_end;
    // What was kept came again, behind this gap or behind the one before: the requester goes back,
    // and sends what else is missing without being told.
    bool came_again = false;
    bool goes_back = false;

    // The requester understands lists (GapList): it said so. What is owed of them begins here.
    bool peer_reads_lists = false;
    PacketNumber list_from;
    GapList heard;  // The last that the peer sent as the responder to our requests.

    void start_responder() {
        peer_reads_lists = false;
        executed_begin = executed_end = PacketNumber();
        came_again = goes_back = false;
    }
    void note_duplicate(PacketNumber number) {
        if (executed_begin <= number && number < executed_end) came_again = true;
    }

    // The requester's: responses behind one that is missing.
    OutOfOrderStore responses;
    PeerKind peer;
    Instant repeated_at{};   // When the oldest packet was last sent alone.
    PacketNumber asked_end;  // Responses before it were asked for again.
    PacketNumber acked_end;  // Up to here the peer acknowledged, past READs without an answer.
    // What lists told. Null: nothing that counts now.
    std::unique_ptr<Scoreboard> board;
    bool peer_sends_lists = false;
    // The peer is told that we understand lists at the first loss, the second, the fourth and so
    // on, until it sends one.
    std::uint32_t losses = 0;
    bool should_say_hello() {
        ++losses;
        return !peer_sends_lists && (losses & (losses - 1)) == 0;
    }

    void start_requester() {
        peer = PeerKind();
        asked_end = acked_end = PacketNumber();
        board.reset();
        peer_sends_lists = false;
        losses = 0;
    }
};

}  // namespace feroce::transport::rc
