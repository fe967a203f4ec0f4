// UcMachine: unreliable connections. The requester cuts messages into packets and forgets them; the
// responder takes a message only if all of its packets arrive in order, and waits for the next
// FIRST or ONLY after a gap. Nothing is acknowledged, so nothing counts in the send window.
#pragma once

#include <cstdint>

#include "base/psn.hpp"
#include "transport/far_traffic.hpp"
#include "transport/held_receive.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::transport {

class UcMachine final : public Machine {
public:
    explicit UcMachine(QueuePair& qp) : qp_(qp), receive_(qp), far_(qp) {}

    void on_packet(Instant now, const wire::Packet& packet, const Arrival& arrival) override;
    void pump(Instant now, std::uint32_t packets_max) override;
    bool wants_to_send(Instant now) const override;
    void on_timer(Instant) override {}
    void on_copies() override { far_.on_copies(); }
    Progress progress() const override;
    Instant deadline() const override { return kNever; }
    void on_modify(Instant now, QpState from) override;
    const char* check_invariants() const override;

private:
    // The message being received. The rest is valid while `open`.
    struct Message {
        bool open = false;
        wire::Verb verb = wire::Verb::Send;
        std::uint64_t received = 0;
        wire::Reth reth;  // WRITE only.
    };

    // Requester.
    bool may_send() const;
    bool advance_head(Instant now);  // False if it was a local operation: no packet.
    void send_packet(Instant now, const SendWqe& wqe);
    void run_local(Instant now, const SendWqe& wqe);
    void tell_when_drained();

    // Responder. Each check returns true to go on; on false the packet was dropped and counted.
    bool check_sequence(const wire::Packet& packet);
    bool check_length(const wire::Packet& packet);
    bool begin(const wire::Packet& packet);
    bool begin_write(const wire::Reth& reth);
    bool store(Instant now, const wire::Packet& packet);
    bool store_send(Instant now, const wire::Packet& packet);
    bool store_write(const wire::Packet& packet);
    bool stage(const wire::Packet& packet);  // By way of far memory, or behind what goes there.
    Landings::Target target_of(const wire::Packet& packet) const;
    void finish(Instant now, const wire::Packet& packet);
    Completion completion_of(Instant now, const wire::Packet& packet) const;
    bool drop(DropReason reason);  // With the message, if one is open. Returns false.

    QueuePair& qp_;
    Psn next_psn_;                    // Zero before RTS.
    std::uint32_t sent_of_head_ = 0;  // Packets of the oldest request that are on their way.
    bool drain_pending_ = false;      // In SQD, and the program wants to know when it is drained.
    Psn expected_psn_;                // Zero before RTR.
    bool established_ = false;        // The peer has been heard.
    Message message_;
    HeldReceive receive_;
    FarTraffic far_;
};

}  // namespace feroce::transport
