// QueuePair: what all transports share, and the Machine that a transport is. The device owns queue
// pairs, feeds them packets, time and posts, and asks them afterwards what they want:
// wants_to_send() and deadline(). A machine never calls back into the device but through Services.
//
// What packets touch is a QpHot at the front (qp_hot.hpp), and the machine is part of the same
// block, so that all of it is asked for by one prefetch().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>

#include "base/cache.hpp"
#include "base/ids.hpp"
#include "base/time.hpp"
#include "mem/memory.hpp"
#include "transport/copies.hpp"
#include "transport/counters.hpp"
#include "transport/held_completions.hpp"
#include "transport/hold_budget.hpp"
#include "transport/qp_hot.hpp"
#include "transport/reason.hpp"
#include "transport/receive_queue.hpp"
#include "transport/send_queue.hpp"
#include "transport/send_window.hpp"
#include "transport/transmit_batch.hpp"
#include "transport/types.hpp"
#include "transport/work.hpp"
#include "wire/packet.hpp"

namespace feroce::transport {

class QueuePair;

namespace rc {
struct Recovery;
}

// The receive queue an XRC request names, and where its completions go. Both null or neither.
struct XrcTarget {
    ReceiveQueue* queue = nullptr;
    CompletionSink* cq = nullptr;
};

// Asynchronous events as data; the device turns them into what its owner polls.
class EventSink {
public:
    virtual ~EventSink() = default;
    virtual void qp_event(QueuePair& qp, AsyncEventType type) = 0;
    virtual void srq_event(ReceiveQueue& srq, AsyncEventType type) = 0;
    // Null members if there is none of that number or its domain is another.
    virtual XrcTarget find_xrc_srq(SrqNumber number, std::uint32_t xrc_domain) = 0;
};

// What an engine lends its queue pairs. Outlives them.
struct Services {
    mem::Memory& memory;
    TransmitBatch& transmit;
    Counters& counters;
    ReasonLog& reasons;
    EventSink& events;
    HeldCompletions& held;
    // Where queue pairs and their send requests live.
    std::pmr::memory_resource* queue_memory = std::pmr::get_default_resource();
    Copies* copies = nullptr;  // Null: far memory cannot be used.
    // For packets that came too early. Null: none is kept, and after a loss all is sent again.
    HoldBudget* hold_budget = nullptr;
};

// Where a packet came from.
struct Arrival {
    Gid source;
    Gid destination;
    std::uint16_t source_port = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
    std::uint32_t packets = 1;  // That it stands for: see packet_builder.hpp.
};

// How far a queue pair is. Unreliable ones have PSNs and may be draining; the rest is zero.
struct Progress {
    Psn next;               // To be sent. Zero before RTS.
    Psn unacknowledged;     // The oldest; equal to next if nothing is.
    Psn expected;           // From the peer. Zero before RTR; datagrams expect none.
    bool draining = false;  // In SQD, and what was begun is not finished.
    std::uint32_t msn = 0;
    std::uint32_t in_flight_bytes = 0;
    std::int32_t credits = -1;  // Receives that the peer has posted for us; -1 if it does not say.
    std::uint8_t retries_left = 0;
    std::uint8_t rnr_retries_left = 0;
};

class Machine {
public:
    virtual ~Machine() = default;

    virtual void on_packet(Instant now, const wire::Packet& packet, const Arrival& arrival) = 0;
    // Whether it carries a PSN that only the peer knows to be the right one now.
    virtual bool expects(const wire::Packet&) const { return true; }
    // Sends up to `packets_max` packets into the transmit batch.
    virtual void pump(Instant now, std::uint32_t packets_max) = 0;
    virtual bool wants_to_send(Instant now) const = 0;  // pump() would make progress now.
    // All it would send is an acknowledgement, which may travel with what the program sends next.
    virtual bool owes_only_ack(Instant) const { return false; }
    // Builds the acknowledgement that pump() would send now, and does not send it. False: none.
    virtual bool build_owed_ack(AckBytes) { return false; }
    virtual bool owes_ack() const { return false; }
    virtual bool owes_answers() const { return false; }  // Or a refusal: they leave before it.
    // The peer was told, by a packet given to the transmit batch, that this request was executed.
    virtual bool acknowledged(PacketNumber) const { return true; }
    // It would, if only the window were open.
    virtual bool waits_for_window(Instant) const { return false; }
    virtual void on_timer(Instant now) = 0;
    // Copies that it waits for are over; what follows from that is done by pump().
    virtual void on_copies() {}
    // Sends a packet that a living peer must answer and that changes nothing at either end. False
    // if there is none now: then the machine's own retries tell, or nothing does.
    virtual bool ask_peer() { return false; }
    virtual Progress progress() const = 0;
    virtual Instant deadline() const = 0;  // kNever if no timer runs.
    // Takes the memory that the queue pair's attributes ask for. May throw; before on_modify().
    virtual void reserve() {}
    // After the queue pair's state or attributes changed by modify.
    virtual void on_modify(Instant now, QpState from) = 0;
    // Between calls: the first invariant that does not hold, in words; null if all do. Slow: for
    // the simulator and tests.
    virtual const char* check_invariants() const { return nullptr; }
};

class alignas(kCacheLine) QueuePair {
public:
    static constexpr std::size_t kMachineBytes = 384;

    QueuePair(Qpn qpn, const QpInit& init, Services& services);
    ~QueuePair();
    QueuePair(const QueuePair&) = delete;
    QueuePair& operator=(const QueuePair&) = delete;

    Qpn qpn() const { return hot_.qpn; }
    QpType type() const { return hot_.init.type; }
    bool is_reliable() const { return type() != QpType::Uc && type() != QpType::Ud; }
    const QpInit& init() const { return hot_.init; }
    Services& services() { return *hot_.services; }
    SendQueue& send_queue() { return send_queue_; }
    const SendQueue& send_queue() const { return send_queue_; }
    ReceiveQueue& receive_queue() { return *hot_.receive_queue; }
    bool uses_srq() const { return hot_.init.srq != nullptr; }
    Machine& machine() { return *hot_.machine; }
    const Machine& machine() const { return *hot_.machine; }

    const QpAttributes& attributes() const { return hot_.attributes; }
    QpState state() const { return hot_.attributes.state; }
    // Only remember it: the caller tells the machine by on_modify().
    void set_attributes(const QpAttributes& attributes) { hot_.attributes = attributes; }
    void set_state(QpState state) { hot_.attributes.state = state; }

    // The window of its destination: the device sets it when the path is known (RTR).
    SendWindow* window() const { return hot_.window; }
    void set_window(SendWindow* window) { hot_.window = window; }

    DeviceRecord& device() { return hot_.device; }
    const DeviceRecord& device() const { return hot_.device; }

    // Bytes are on their way into far memory, which cannot be called back: a program must not be
    // told before that its buffers are its own again. Copies counts.
    bool delivers() const { return hot_.deliveries > 0; }
    void count_delivery() { ++hot_.deliveries; }
    void end_delivery() { --hot_.deliveries; }
    FarPlaces& far_work() { return far_work_; }  // Its machine's.
    const FarPlaces& far_work() const { return far_work_; }
    // Its machine's too, if it is a reliable one; null until a packet was lost.
    rc::Recovery* recovery() const { return recovery_.get(); }
    bool make_recovery();  // Unless there is one. False without memory.

    // HeldCompletions counts its own here.
    std::uint32_t completions_held() const { return hot_.completions_held; }
    void set_completions_held(std::uint32_t count) { hot_.completions_held = count; }

    // Sent: retransmissions and acknowledgements included. Received: from its peer, duplicates
    // included. The device counts.
    std::uint64_t packets_sent() const { return hot_.packets_sent; }
    std::uint64_t packets_received() const { return hot_.packets_received; }
    void count_sent(std::uint64_t packets) { hot_.packets_sent += packets; }
    void count_received() { ++hot_.packets_received; }

    // Whether post_send() would take it now; the message's length if so.
    Result<std::uint64_t> check_send(const SendWr& wr) const;
    Result<void> post_send(Instant now, const SendWr& wr);
    Result<void> post_receive(Instant now, const ReceiveWr& wr);

    // What every completion of it says: wr_id, time and queue pair.
    Completion completion_of(Instant now, std::uint64_t wr_id) const;
    // The next receive of a queue that may be another's (XRC). Tells its owner of the limit.
    bool take_receive(ReceiveQueue& queue, ReceiveWqe& into);
    void tell_drained();  // In SQD, and what was begun is finished.

    void complete_send(Instant now, const SendWqe& wqe, WcStatus status, std::uint32_t reason);
    void complete_receive(const Completion& completion);
    // To a queue that may be another's (XRC).
    void give(CompletionSink& cq, const Completion& completion);
    // A completion queue was full. The device moves the queue pair to ERR when its machine is done
    // with what it does.
    bool lost_completion() const { return hot_.completion_lost; }
    void lose_completion() { hot_.completion_lost = true; }
    void forget_lost_completion() { hot_.completion_lost = false; }

    // First cause recorded, state ERR, everything posted flushed in post order.
    void fail(Instant now, const Reason& reason);
    // As fail, but the oldest send completes with the reason's status, signalled or not.
    void fail_send(Instant now, const Reason& reason);
    // As fail, but a receive taken off its queue completes first, with the reason's status.
    void fail_receive(Instant now, const Reason& reason, Completion receive, CompletionSink* cq);
    std::uint32_t record(const Reason& reason);  // Remembers it as first cause if it is the first.
    // Flushes what is left of both queues; the state is ERR already (or SQE: sends only). Nothing
    // as long as bytes are on their way into far memory: the caller of Copies::finish() owes
    // finish_flush() for the queue pair that it gives back.
    void flush_sends(Instant now);
    void flush_receives(Instant now);
    void finish_flush(Instant now);
    std::uint32_t first_reason() const { return hot_.first_reason; }
    void forget_reason() { hot_.first_reason = 0; }  // SQE to RTS: what went wrong is over.
    void clear();                                    // To RESET: queues empty, no completions.

    // A packet or a post for it is near: fetch what either will touch, all at once.
    void prefetch() const;

    Path path() const;  // From the address vector; the flow follows from both QPNs.

private:
    void enter_error(Instant now);

    QpHot hot_;
    SendQueue send_queue_;
    std::optional<ReceiveQueue> own_receive_queue_;
    FarPlaces far_work_;
    std::unique_ptr<rc::Recovery> recovery_;
    alignas(kCacheLine) std::array<std::byte, kMachineBytes> machine_place_;
};

struct QueuePairDelete {
    void operator()(QueuePair* qp) const;
};
using QueuePairPtr = std::unique_ptr<QueuePair, QueuePairDelete>;

QueuePairPtr make_queue_pair(Qpn qpn, const QpInit& init, Services& services);

}  // namespace feroce::transport
