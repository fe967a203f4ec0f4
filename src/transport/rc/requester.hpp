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
#include "base/time.hpp"
#include "transport/packet_builder.hpp"
#include "transport/queue_pair.hpp"
#include "transport/rc/far_outbound.hpp"
#include "transport/rc/flight.hpp"
#include "wire/opcode.hpp"

namespace feroce::transport::rc {

class Requester {
public:
    Requester(QueuePair& qp, wire::Service service);

    void start();    // RTR to RTS: numbers begin at the send PSN.
    void reserve();  // Takes the memory for read_atomic_max. May throw.
    void stop();     // ERR or RESET: timers off, nothing in flight.

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

    const char* check_invariants() const;  // See Machine.

private:
    // Sending (requester.cpp).
    bool may_send_next(Instant now) const;  // But for the window.
    bool window_open(Instant now) const;
    bool runs_ahead() const;  // Of the window, by a ring.
    bool may_start(const SendWqe& wqe) const;
    bool within_credits(const SendWqe& wqe) const;
    void number(SendWqe& wqe);
    bool send_next(Instant now);  // False if the queue pair failed.
    bool send_probe(Instant now);
    std::uint32_t run_until(PacketNumber end) const;
    bool send_message_packet(Instant now, SendWqe& wqe);
    bool send_read(Instant now, SendWqe& wqe);    // reads.cpp
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
    std::uint64_t index_of(PacketNumber number) const;  // The request in the queue that has it.
    std::uint32_t read_piece_packets(std::uint32_t packets) const;

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
    bool is_being_repaired(Instant now, PacketNumber number) const;
    void go_on_repairing(Instant now, PacketNumber number);
    void note_acknowledged(PacketNumber end);
    bool rest_is_lost(PacketNumber to) const;
    void judge_peer(PacketNumber to);
    void note_echo(Instant now);
    bool is_answered(PacketNumber number) const;
    bool fits(const wire::Packet& packet, PacketNumber number) const;
    bool hold_response(Instant now, const wire::Packet& packet, PacketNumber number,
                       std::uint32_t packets);
    void on_early_response(Instant now, const wire::Packet& packet, PacketNumber number,
                           std::uint32_t packets);
    void take_held(Instant now);
    void drop_held();
    // answers.cpp: those that are missing.
    bool may_ask(const SendWqe& wqe) const;  // For one more response.
    bool open_board();
    bool may_judge();
    void note_loss(Instant now, const SendWqe& wqe, PacketNumber number);
    std::uint64_t overtaken_max() const;
    bool is_late(Instant now, PacketNumber number) const;
    void lose(const SendWqe& wqe, PacketNumber number);
    void forget_asked();
    void count_answer(PacketNumber number);
    void note_answer(Instant now, PacketNumber number);
    void judge_answers(Instant now, PacketNumber end);
    enum class Asked : std::uint8_t { Once, Again };
    bool lose_answers(Instant now, PacketNumber from, PacketNumber to, Asked which);
    bool expire_ask(Instant now);
    void report_lost_answer(Instant now);
    void lose_oldest_answer(Instant now);
    std::uint32_t due_answers(const SendWqe& wqe, PacketNumber number) const;
    PacketNumber piece_end(const SendWqe& wqe, PacketNumber number) const;
    bool asks_too_much() const;
    // gaps.cpp: what lists tell.
    bool hears_lists() const;
    void say_hello();
    void take_list(Instant now, ByteView payload);
    void on_gap_list(Instant now);
    void settle_arrived(PacketNumber end);
    void on_named_gap(Instant now, PacketNumber reach, PacketNumber number);
    void mark_missing(Instant now, const SendWqe& wqe, PacketNumber number);
    void mark_kept(Instant now, const SendWqe& wqe, PacketNumber number);
    std::uint32_t forget_told(Instant now, PacketNumber to);
    bool may_send_missing(Instant now) const;
    bool send_missing(Instant now);
    void note_repeated(Instant now, PacketNumber from, std::uint32_t packets);
    PacketNumber board_limit() const;  // Beyond, nothing can be noted.
    bool is_full() const;
    void count_oldest();
    void check_promise();
    bool may_probe_early() const;
    void drop_board();
    const char* check_held() const;  // invariants.cpp
    void fail_if_faulty_head(Instant now);
    void arm(Instant now);
    void arm_blindly(Instant now);
    Duration ack_patience() const;
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
    bool has_carried_full_ : 1 = false;  // A packet of the path MTU was acknowledged.
    RttSample sample_;
    Credits credits_;
};

}  // namespace feroce::transport::rc
