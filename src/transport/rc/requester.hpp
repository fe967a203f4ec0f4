// The sending half of a reliable connection: cuts requests into packets, remembers only positions
// (never bytes: a resend reads the program's memory again), and goes back on loss.
//
// Packets are counted by 64-bit numbers; PSNs are widened where an answer comes in, against the
// oldest packet that is not acknowledged, and cut where a packet goes out.
//
// The position is what goes out next. A rewind sets it back to the oldest packet not acknowledged.
// A repair sends that packet again and leaves the position where it is: the peer may have kept what
// follows (repair.cpp).
// The packets of READs and atomics are acknowledged only by their responses. Invariants are in
// check_invariants() (invariants.cpp).
#pragma once

#include <cstdint>
#include <optional>

#include "base/packet_number.hpp"
#include "base/ring.hpp"
#include "base/time.hpp"
#include "transport/packet_builder.hpp"
#include "transport/queue_pair.hpp"
#include "transport/rc/far_outbound.hpp"
#include "wire/opcode.hpp"

namespace feroce::transport::rc {

class Requester {
public:
    Requester(QueuePair& qp, wire::Service service);

    void start();    // RTR to RTS: numbers begin at the send PSN.
    void reserve();  // Takes the memory for read_atomic_max. May throw.
    // How READs are cut follows read_atomic_max. Requests that are out stay, even if they are more
    // than may be from now on.
    void cut_reads();
    void stop();  // ERR or RESET: timers off, nothing in flight.

    void on_attributes(Instant now);  // They may have changed: the timeout, in SQD.
    void pump(Instant now, std::uint32_t packets_max);
    bool wants_to_send(Instant now) const;
    bool waits_for_window(Instant now) const;
    void on_response(Instant now, const wire::Packet& packet, std::uint32_t packets);
    void on_timer(Instant now);
    // Far memory: copies are over; answers are in memory, and what follows from that.
    void on_copies() { far_gathers_ = false; }
    bool has_landed() const;
    void settle_far(Instant now);
    Instant deadline() const;
    bool expects(Psn psn) const;       // It answers something sent.
    void report(Progress& out) const;  // Its half.
    bool idle() const;                 // Nothing sent is unanswered: SQD may call itself drained.
    // See Machine. Const: whatever the answer, no number is taken and nothing waits for it.
    bool ask_peer() const;
    // The peer has told which packets it keeps (rc/gaps.cpp).
    void on_gap_list(Instant now);
    // Of a packet that changes nothing at the peer.
    Psn duplicate() const { return (flight_.una - 1).psn(); }

    const char* check_invariants() const;  // See Machine.

private:
    // What goes out next: a packet of the request with that index.
    struct Position {
        std::uint64_t index = 0;
        std::uint32_t packet = 0;
        Counter resend_cause = Counter::ResentByTimeout;  // Of the last rewind.
    };
    // A resend long before the acknowledgement timeout, when round trips are known to be short: the
    // oldest packet again, alone, since the peer may only be slow. It is not counted: retry_count
    // means timeouts of the length the program chose. A repair is one too, of what the peer said is
    // missing.
    struct Probe {
        Instant deadline = kNever;
        std::uint8_t sent = 0;      // Since the last progress: each waits twice as long.
        std::uint8_t run = 1;       // How many packets the next one sends.
        std::uint8_t repeated = 0;  // How many were sent, from the oldest on.
        std::uint8_t echoes = 0;    // The last acknowledgement came again so often.
        Counter cause = Counter::ResentByProbe;
        bool due : 1 = false;
        bool sending : 1 = false;     // Only while send_probe() runs.
        bool of_message : 1 = false;  // A message's packet was probed: see rest_is_lost().
        bool is_repair : 1 = false;
    };
    // What was sent and is not answered.
    struct Flight {
        PacketNumber una;                     // The oldest packet not yet acknowledged.
        PacketNumber sent_end;                // One past the highest packet ever sent.
        PacketNumber fresh;                   // First number that no request owns yet.
        PacketNumber taken;                   // Before it the peer has all, as its NAKs say.
        std::uint32_t bytes = 0;              // This queue pair's share of its window.
        std::uint32_t since_ack_request = 0;  // Bytes sent since an acknowledgement was asked for.
        // One past the last packet of each outstanding READ or atomic: at most read_atomic_max.
        Ring<PacketNumber> read_ends{1};
    };
    // One round-trip sample at a time (Karn: never of a resent packet).
    struct RttSample {
        PacketNumber packet;
        Instant sent = kNever;  // kNever: none runs.
        bool runs() const { return sent != kNever; }
        void stop() { sent = kNever; }
    };
    // End-to-end credits, if known: messages that take a receive may start below `limit`.
    struct Credits {
        std::uint64_t next = 0;  // The number of the next message.
        std::uint64_t limit = 0;
        bool known = false;
    };

    // Sending (requester.cpp).
    bool may_send_next(Instant now) const;  // But for the window.
    bool window_open(Instant now) const;
    bool runs_ahead() const;  // Of the window, by a ring.
    bool may_start(const SendWqe& wqe) const;
    bool may_ask() const;  // For one more response.
    bool within_credits(const SendWqe& wqe) const;
    void number(SendWqe& wqe);
    bool send_next(Instant now);  // False if the queue pair failed.
    bool send_probe(Instant now);
    std::uint32_t run_until(PacketNumber end) const;
    bool send_message_packet(Instant now, SendWqe& wqe);
    bool send_read(Instant now, SendWqe& wqe);
    bool send_single(Instant now, SendWqe& wqe);  // Atomics, ATOMIC WRITE and FLUSH.
    bool run_local(Instant now, SendWqe& wqe);
    bool execute_once(Instant now, SendWqe& wqe);  // False: it is not over, or has failed.
    bool transmit(Instant now, SendWqe& wqe, PacketSpec& spec, std::uint32_t packets);
    bool wants_ack(Instant now, bool last, std::uint32_t packet_cost);
    void advance_position(const SendWqe& wqe, std::uint32_t packets);
    // Of its packets [from, to), in bytes of the window.
    std::uint32_t cost(const SendWqe& wqe, std::uint64_t from, std::uint64_t to) const;
    std::uint32_t packets_of(const SendWqe& wqe) const;
    PacketNumber position_number() const;

    // Answers (completer.cpp).
    bool was_sent(PacketNumber number) const;  // And is not yet acknowledged.
    void on_ack(Instant now, PacketNumber number, wire::Aeth aeth);
    void on_nak(Instant now, PacketNumber number, wire::Syndrome syndrome);
    void note_taken(PacketNumber number);
    void on_rnr(Instant now, PacketNumber number, std::uint8_t timer);
    void take_response(Instant now, const wire::Packet& packet, PacketNumber number,
                       std::uint32_t packets);
    void on_read_response(Instant now, const wire::Packet& packet, PacketNumber number,
                          std::uint32_t packets);
    void on_atomic_response(Instant now, const wire::Packet& packet, PacketNumber number);
    PacketNumber first_unanswered_before(PacketNumber end) const;
    std::optional<std::uint64_t> awaiting_response(PacketNumber number);
    bool store_response(Instant now, std::uint64_t index, std::uint64_t offset, ByteView bytes);
    void update_credits(wire::Aeth aeth);
    void advance(Instant now, PacketNumber to);
    std::uint32_t bytes_between(PacketNumber from, PacketNumber to) const;
    void settle_flight(Instant now, PacketNumber to);
    void take_sample(Instant now);
    void note_progress();
    bool rest_is_lost(PacketNumber to) const;
    void retire_finished(Instant now);
    void rewind(Counter cause);
    void seek_unanswered();
    void go_back(Instant now, Counter cause, Rule rule, std::uint8_t syndrome);
    void fail_head(Instant now, Rule rule, WcStatus status, std::uint8_t syndrome,
                   mem::Fault fault = mem::Fault::None);
    void fail_head(Instant now, Reason reason);  // PSN and work request are filled in.
    void fail_response(Instant now, std::size_t length, std::uint64_t expected);
    bool spend_retry(Instant now, Rule rule, std::uint8_t syndrome);  // False if none was left.

    // repair.cpp: only what is missing is sent again.
    bool may_repair();
    void repair(Counter cause, std::uint8_t run);
    void repair_response(Instant now, std::uint8_t syndrome);
    bool is_being_repaired(Instant now, PacketNumber number) const;
    void go_on_repairing(Instant now, PacketNumber number);
    void note_acknowledged(PacketNumber end);
    bool is_asked_for() const;
    void judge_peer(PacketNumber to);
    void note_echo(Instant now);
    bool is_answered(PacketNumber number) const;
    bool hold_response(const wire::Packet& packet, PacketNumber number, std::uint32_t packets);
    void on_early_response(Instant now, const wire::Packet& packet, PacketNumber number,
                           std::uint32_t packets);
    void say_response_lost(Instant now);
    void take_held(Instant now);
    void drop_held();
    std::uint32_t ask_again(PacketNumber from, std::uint32_t packets);
    // gaps.cpp: what lists tell.
    bool hears_lists() const;
    void say_hello();
    void on_named_gap(Instant now, PacketNumber reach, PacketNumber number);
    void mark_missing(Instant now, const SendWqe& wqe, PacketNumber number);
    void mark_kept(Instant now, const SendWqe& wqe, PacketNumber number);
    std::uint32_t forget_told(PacketNumber to);
    std::uint32_t own_cost(const SendWqe& wqe, PacketNumber number) const;
    bool may_send_missing(Instant now) const;
    bool send_missing(Instant now);
    bool is_full() const;
    void count_oldest();
    void check_promise();
    void drop_board();
    const char* check_held() const;  // invariants.cpp
    void fail_if_faulty_head(Instant now);
    void arm(Instant now);
    void count_resent();

    // requester_far.cpp: memory that is reached by copies.
    FarOutbound* far_work() const {  // Null until far memory is met.
        return static_cast<FarOutbound*>(qp_.far_work().outbound.get());
    }
    FarOutbound& far();
    void stop_far();
    mem::Fault gather_far(std::uint64_t offset, ByteSpan into);
    void wait_for_source();
    void gather_more();
    mem::Fault land(std::uint64_t index, std::uint64_t offset, ByteView bytes);
    mem::Fault add_to_landings(std::uint64_t index, std::uint64_t offset, ByteView bytes);
    mem::Fault open_landing(std::uint64_t index, std::uint64_t offset, FarOutbound::Landing*& out);
    mem::Fault start_landing(FarOutbound::Landing& landing);
    mem::Fault close_landing(std::uint64_t index);
    void drop_landings(std::uint64_t index);
    bool lands_for(std::uint64_t index) const;
    bool may_land_more() const;
    void fail_landing(Instant now, mem::Fault fault);
    bool postpone(const Reason& reason);
    bool is_failing() const { return far_lands_ && far_work()->failure.has_value(); }
    void halt();  // Nothing in flight, no timer.
    // invariants.cpp
    const char* check_stopped() const;
    const char* check_numbers() const;
    const char* check_flight() const;

    // First what a look at the queue pair asks for: deadline(), wants_to_send().
    Instant retry_deadline_ = kNever;
    Instant rnr_until_ = kNever;  // Not kNever: the peer asked for silence until then.
    Position position_;
    Probe probe_;
    Flight flight_;
    QueuePair& qp_;
    std::uint32_t read_piece_packets_ = 1;  // Set by start().
    wire::Service service_;
    std::uint8_t retries_left_ = 0;
    std::uint8_t rnr_left_ = 0;
    bool far_gathers_ : 1 = false;   // The position waits for bytes from far memory.
    bool far_lands_ : 1 = false;     // Answers are on their way to far memory.
    bool gap_reported_ : 1 = false;  // A lost response was noticed; once until progress is made.
    bool tests_peer_ : 1 = false;    // A first repair is on its way; its answer is waited for.
    bool holds_ : 1 = false;         // Responses behind one that is missing.
    bool has_board_ : 1 = false;     // A Scoreboard.
    bool sends_again_ : 1 = false;   // What lists said is missing.
    bool ends_turn_ : 1 = false;     // With the next packet.
    RttSample sample_;
    Credits credits_;
};

}  // namespace feroce::transport::rc
