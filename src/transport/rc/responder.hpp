// The receiving half of a reliable connection: takes requests in order, executes each once, and
// answers. A request's PSN is widened when it comes in, against expected_. An in-order request
// passes a chain of checks, each of which may refuse it with a NAK; duplicates are answered again
// without being executed again (replay.cpp).
//
// Answers leave in request order: READ and atomic responses queue up in jobs_, and an
// acknowledgement or NAK of a later request waits until they are out. A receive completion is held
// until its request was acknowledged, asked for or not (held_completions.hpp). An atomic is
// remembered in atomics_ until dest_read_atomic_max younger ones have come: that long the peer may
// ask again. Where memory is far (mem/far_memory.hpp), an answer waits until it is true: see
// responder_far.cpp. Invariants are in check_invariants() (invariants.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "base/packet_number.hpp"
#include "base/ring.hpp"
#include "base/time.hpp"
#include "transport/packet_builder.hpp"
#include "transport/queue_pair.hpp"
#include "transport/rc/far_inbound.hpp"
#include "wire/opcode.hpp"

namespace feroce::transport::rc {

struct GapList;

class alignas(kCacheLine) Responder {
public:
    Responder(QueuePair& qp, wire::Service service);

    void start();            // INIT to RTR: numbers begin at the receive PSN.
    void reserve();          // Takes the memory for dest_read_atomic_max. May throw.
    void stop(Instant now);  // ERR or RESET. In ERR a receive in hand is flushed.

    // `packets`: how many PSNs it uses, of those that carry a message (packet_builder.hpp).
    void on_request(Instant now, const wire::Packet& packet, std::uint32_t packets);
    // In ERR: the peer may not have heard our last word; it is repeated when asked.
    void repeat_last_word(const wire::Packet& packet);
    void pump(Instant now, std::uint32_t packets_max);  // Responses.
    // What follows the responses: a refusal that waited for them, or the bare acknowledgement.
    void pump_last(Instant now);
    void report(Progress& out) const;  // Its half.
    bool expects(Psn psn) const { return psn == expected_.psn(); }
    bool wants_to_send() const {
        if (far_busy_) [[unlikely]]
            return far_wants_to_send();
        return !jobs_.empty() || ack_owed_ || nak_owed_ || verdict_ || list_owed_;
    }
    bool owes_ack() const { return ack_owed_; }
    bool owes_answers() const { return !jobs_.empty() || verdict_ || nak_owed_; }
    bool owes_only_ack() const { return ack_owed_ && !owes_answers() && !far_busy_ && !list_owed_; }
    bool build_owed_ack(AckBytes into);  // See Machine.
    // Lists of gaps (responder_held.cpp).
    bool owes_list() const { return list_owed_; }
    void send_lists();
    const char* check_invariants() const;  // See Machine.
    bool acknowledged(PacketNumber number) const { return number <= acknowledged_; }

private:
    // Why a request is not executed, and what the peer is told.
    struct Refusal {
        wire::Syndrome syndrome;  // An acknowledgement if it is none of the peer's business.
        Rule rule = Rule::None;
        // Of our own receive, if one is held; Success if the fault is the peer's alone.
        WcStatus receive_status = WcStatus::Success;
        mem::Fault fault = mem::Fault::None;
        std::uint32_t length = 0;  // MtuMismatch: of the packet.
        mem::AccessSet need{};     // RemoteKey and OperationNotEnabled: what it would have taken.
    };
    using Check = std::optional<Refusal>;

    enum class JobKind : std::uint8_t { Read, Atomic, Empty };
    struct Job {
        std::uint64_t value = 0;  // READ: where its next byte stands. Atomic: the answer.
        PacketNumber next;        // Its next packet.
        // A READ's own:
        std::uint32_t left = 0;  // Bytes still to send.
        RKey rkey;
        PdId pd{};
        JobKind kind = JobKind::Read;
        bool started = false;
    };
    struct AtomicResult {
        PacketNumber number;
        JobKind kind = JobKind::Atomic;
        std::uint64_t original = 0;
    };
    enum class Message : std::uint8_t { None, Send, Write };

    // responder.cpp: the chain of checks.
    Check check_sequence(const wire::Packet& packet) const;
    Check check_operation(const wire::Packet& packet) const;
    Check check_length(const wire::Packet& packet, std::uint32_t packets) const;
    Check check_rkey(const wire::Packet& packet, mem::Lookup& target);
    Refusal refuse_key(const wire::Packet& packet, mem::Fault fault, WcStatus receive_status);
    mem::Attempt attempt_of(const Refusal& verdict) const;
    Check check_resources(const wire::Packet& packet);
    // In order, or not: `number` is its own.
    void take_request(Instant now, const wire::Packet& packet, std::uint32_t packets,
                      PacketNumber number);
    bool is_over() const {  // By a refusal that is the end.
        return verdict_ && verdict_->syndrome.kind() != wire::Syndrome::Kind::Rnr;
    }
    bool has_begun() const {  // The first packet has come, if only to be sent again.
        return first_came_ || expected_ != PacketNumber::first(qp_.attributes().receive_psn);
    }
    void on_unexpected(const wire::Packet& packet, std::uint32_t packets, PacketNumber number);
    void on_gap(const wire::Packet& packet, std::uint32_t packets, PacketNumber number);
    void say_gap();  // By a NAK, once a gap.
    void on_full();  // There is no place for the completion of the request that has come.
    void refuse(Instant now, const Refusal& refusal);  // At once, or when all jobs are done.
    void pass(Instant now, const Refusal& verdict);
    void fail(Instant now, const Refusal& verdict);
    void establish();
    void note(NoticeKind kind, PacketNumber number) const;

    // responder_held.cpp: requests that came before one that is missing.
    bool hold(const wire::Packet& packet, std::uint32_t packets, PacketNumber number);
    void execute_held(Instant now, bool asked);
    void drop_held();
    void owe_lists(bool of_all);
    void send_list(const GapList& list);
    PacketNumber tell_gaps(PacketNumber from, int lists_max);
    bool take_hello(const wire::Packet& packet);
    bool is_copy(const wire::Packet& packet, PacketNumber number) const;
    const char* check_held() const;  // invariants.cpp

    // responder_execute.cpp: what a good request does.
    // `target`: what check_rkey() found.
    Check execute(Instant now, const wire::Packet& packet, std::uint32_t packets,
                  const mem::Lookup& target);
    Check execute_send(const wire::Packet& packet);
    Check execute_write(const wire::Packet& packet, const mem::Lookup& message);
    Check execute_read(const wire::Packet& packet);
    Check execute_atomic(const wire::Packet& packet);
    Check execute_atomic_write(const wire::Packet& packet);
    Check execute_flush();
    Check answer_once(JobKind kind, std::uint64_t original);
    void complete_receive(Instant now, const wire::Packet& packet);
    bool take_receive(const wire::Packet& packet);
    // Where the receive in hand comes from, asked again whenever it counts: an XRC queue and its
    // completion queue may be destroyed between two packets. Null members then.
    XrcTarget receive_source() const;
    bool receive_lost();  // It is in hand no more, if its queue is gone.
    // An XRC target has no protection domain: the receive queue that a request names has it.
    PdId pd_of(const wire::Packet& packet) const;
    Completion receive_completion(Instant now) const;
    Completion completion_of_message(Instant now, const wire::Packet& packet) const;

    // replay.cpp: duplicates, and the packets that answer.
    void replay(const wire::Packet& packet, PacketNumber number);
    void replay_read(const wire::Packet& packet, PacketNumber number);
    bool may_read(const wire::Packet& packet) const;
    bool too_many_jobs() const;
    std::size_t jobs_max() const;
    std::size_t atomics_max() const;
    void replay_atomic(PacketNumber number);
    bool send_job_packet(Instant now, Job& job);  // False if the queue pair failed.
    bool send_read_packet(Instant now, Job& job);
    void fail_read(Instant now, const Job& job, mem::Fault fault);
    void send_ack(PacketNumber number, wire::Syndrome syndrome);
    void note_acknowledged(PacketNumber number) { acknowledged_ = std::max(acknowledged_, number); }
    wire::Syndrome credits();
    std::uint32_t read_packets(std::uint32_t length) const;
    const char* check_message() const;  // invariants.cpp
    const char* check_far() const;

    // responder_far.cpp: memory that is reached by copies.
    FarInbound* far_work() const {  // Null until far memory is met.
        return static_cast<FarInbound*>(qp_.far_work().inbound.get());
    }
    FarInbound& far();
    bool has_pieces() const;
    bool owes_memory() const;
    PacketNumber acknowledge_limit() const;
    bool may_acknowledge() const;
    bool far_wants_to_send() const;
    PacketNumber end_of(const wire::Packet& packet, PacketNumber number,
                        std::uint32_t packets) const;
    bool keep_for_later(const wire::Packet& packet, PacketNumber number, std::uint32_t packets);
    bool may_execute(const wire::Packet& packet) const;
    FarList message_list(const wire::Packet& packet) const;
    mem::Fault open_piece(const wire::Packet& packet, std::uint64_t offset,
                          FarInbound::Piece*& out);
    mem::Fault close_piece(FarInbound::Piece& piece);
    mem::Fault start_piece(FarInbound::Piece& piece);
    void start_waiting();
    mem::Fault add_to_pieces(const wire::Packet& packet);
    mem::Fault stage(const wire::Packet& packet);
    void drop_message();
    Refusal refuse_memory(const wire::Packet& packet, mem::Fault fault);
    Check close_message(const wire::Packet& packet);
    void end_far_message(Instant now, const wire::Packet& packet);
    void settle_far(Instant now);
    bool finish_piece();
    void fail_piece(Instant now);
    void plan_reads();
    std::size_t plan_read(const Job& job, std::size_t planned);
    bool begin_read(const Job& job, std::uint64_t offset, std::uint32_t size);
    bool staged_read(const Job& job, std::uint32_t& packets, mem::Fault& fault, ByteView& out);
    void end_staged_read(PacketNumber next);
    void drop_staged_reads();                  // Of regions that became host memory.
    std::uint32_t messages_in_memory() const;  // What the peer is told as message number.
    void drop_far();  // What comes after is not wanted; receives are flushed later.
    void stop_far(Instant now);
    void flush_pieces(Instant now, const std::deque<FarInbound::Piece>& pieces);

    // One cache line, up to the words of jobs_ that say whether it has any.
    QueuePair& qp_;
    wire::Service service_;
    Message message_ = Message::None;
    bool receive_held_ = false;
    bool nak_sent_ = false;  // One NAK a gap; silence until the expected packet comes.
    bool nak_owed_ = false;  // It follows the jobs that are left.
    bool ack_owed_ = false;
    bool established_ = false;
    bool last_word_valid_ = false;
    bool first_came_ = false;   // It could not be taken yet.
    bool far_busy_ = false;     // Copies are on their way, or something waits for them.
    bool holds_ = false;        // Requests behind the one that is missing.
    bool list_owed_ = false;    // The peer is to be told which these are.
    wire::Syndrome last_word_;  // Of expected_, which does not move any more.
    PacketNumber expected_;
    // The message under way: how far it is, and for a WRITE where it goes. After a refusal for the
    // sake of a key, which is the end, the memory that it was for.
    std::uint64_t received_bytes_ = 0;
    std::uint64_t write_address_ = 0;
    std::uint32_t msn_ = 0;
    std::uint32_t write_length_ = 0;
    RKey write_rkey_;
    // Of these two as much counts as the attribute says; the rings may be larger.
    Ring<Job> jobs_;
    // Up to here by the answers and acknowledgements sent so far.
    PacketNumber acknowledged_;
    Ring<AtomicResult> atomics_;
    // The receive it goes to; valid while receive_held_.
    ReceiveWqe receive_;
    SrqNumber receive_srq_;  // XRC only.
    PdId receive_pd_;
    // A refusal that follows the jobs that are left. Unless it is RNR, it is the end: what comes
    // meanwhile is dropped.
    std::optional<Refusal> verdict_;
};

}  // namespace feroce::transport::rc
