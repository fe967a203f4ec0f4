// Recovery: what a reliable connection remembers of losses. Made at the first one; a connection
// that loses nothing has none. See ADR 34 for the rules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/packet_number.hpp"
#include "base/ring.hpp"
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

// How far packets overtake each other on the way. What is missing is taken for lost when so many
// that follow it have come. Learned from those that were taken for lost and came after all, and
// forgotten as losses turn out to be losses: a network that keeps the order costs no waiting.
class Reordering {
public:
    std::uint32_t packets() const { return packets_; }
    void note_late(std::uint64_t packets) {
        packets_ = std::max(packets_, static_cast<std::uint32_t>(std::min(packets, kMost)));
        losses_ = 0;
    }
    void note_lost() {
        if (++losses_ % kMemory == 0) packets_ /= 2;
    }
    void note_waited_in_vain() { packets_ = 0; }

private:
    static constexpr std::uint64_t kMost = 256;
    static constexpr std::uint32_t kMemory = 64;

    std::uint32_t packets_ = 0;
    std::uint32_t losses_ = 0;  // Since one was late.
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
    bool greets = false;  // It is to hear that we send them, if only that nothing is missing.
    bool asked_for_lists = false;  // Those of all gaps, not only of the last one.
    PacketNumber list_from;        // Up to here all was told once, since something is kept.
    PacketNumber retell_from;      // What is far ahead is told again a few gaps at a time.
    GapList heard;                 // The last that the peer sent as the responder to our requests.

    void start_responder() {
        peer_reads_lists = greets = asked_for_lists = false;
        list_from = retell_from = PacketNumber();
        executed_begin = executed_end = PacketNumber();
        came_again = goes_back = false;
    }
    void note_duplicate(PacketNumber number) {
        if (executed_begin <= number && number < executed_end) came_again = true;
    }

    // The requester's: responses behind one that is missing.
    OutOfOrderStore responses;
    PeerKind peer;
    Reordering reordering;
    Instant repeated_at{};     // When the oldest packet was last sent alone.
    PacketNumber rewound_end;  // What is before it was sent twice: its answers tell no order.
    PacketNumber acked_end;    // Up to here the peer acknowledged, past READs without an answer.
    // What lists told. Null: nothing that counts now.
    std::unique_ptr<Scoreboard> board;
    // Of answers, while there is a board (answers.cpp). Before this number it is known which of the
    // first answers are lost.
    PacketNumber judged_end;
    // Before this number nothing is in the network but what was sent again: something behind came.
    PacketNumber arrived_end;
    // Those that were asked for again, in the order of asking. A peer answers in that order, so an
    // answer to what was asked for later says that what is still missing of these is lost again.
    struct AskedAgain {
        PacketNumber begin;
        PacketNumber end;
        PacketNumber sent_end;  // What was sent for the first time by then.
    };
    static constexpr std::size_t kAskedAgainMax = 256;
    Ring<AskedAgain> asked_again{kAskedAgainMax};
    // The answers have come, whether the first time or again.
    void forget_asked_before(PacketNumber number) {
        while (!asked_again.empty() && asked_again.front().end <= number) asked_again.pop();
        if (asked_again.size() < kAskedAgainMax / 4) return;
        for (std::size_t left = asked_again.size(); left > 0; --left) {
            const AskedAgain asked = asked_again.front();
            asked_again.pop();
            if (number < asked.end) asked_again.push(asked);
        }
    }
    std::size_t executed = 0;  // How many requests got an answer, behind one that is missing.
    bool peer_sends_lists = false;
    // The peer is told that we understand lists at the first loss, the second, the fourth and so
    // on, until it sends one.
    std::uint32_t losses = 0;
    // A request for a READ that is lost holds up all behind it, and their answers come at once when
    // it is sent again, more than a queue takes. After one was, those that follow are sent twice
    // for a while; if one of these is lost, three times.
    static constexpr std::uint32_t kCopied = 16384;
    static constexpr int kCopiesMax = 2;
    std::uint32_t copies_left = 0;
    int copies = 0;
    void note_lost_request() {
        copies = std::min(copies_left > 0 ? copies + 1 : 1, kCopiesMax);
        copies_left = kCopied;
    }
    int copies_of_next() {
        if (copies_left == 0) return 0;
        --copies_left;
        return copies;
    }
    bool should_say_hello() {
        ++losses;
        return !peer_sends_lists && (losses & (losses - 1)) == 0;
    }

    void start_requester() {
        peer = PeerKind();
        reordering = Reordering();
        rewound_end = acked_end = PacketNumber();
        board.reset();
        asked_again.clear();
        peer_sends_lists = false;
        losses = copies_left = 0;
        copies = 0;
        executed = 0;
    }
};

}  // namespace feroce::transport::rc
