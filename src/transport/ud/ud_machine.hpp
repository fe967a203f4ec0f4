// UdMachine: unreliable datagrams. One request is one packet and is complete when that packet is in
// the batch; one packet is one receive. Nothing is remembered between packets but the next PSN, a
// receive that was too small for a datagram, and what is on its way from or to far memory.
#pragma once

#include <cstdint>

#include "base/psn.hpp"
#include "transport/far_traffic.hpp"
#include "transport/held_receive.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::transport {

class UdMachine final : public Machine {
public:
    explicit UdMachine(QueuePair& qp) : qp_(qp), receive_(qp), far_(qp) {}

    void on_packet(Instant now, const wire::Packet& packet, const Arrival& arrival) override;
    void pump(Instant now, std::uint32_t packets_max) override;
    bool wants_to_send(Instant now) const override;
    void on_timer(Instant) override {}
    void on_copies() override { far_.on_copies(); }
    Progress progress() const override;
    Instant deadline() const override { return kNever; }
    void on_modify(Instant now, QpState from) override;
    const char* check_invariants() const override { return far_.check_invariants(); }

private:
    bool may_send() const;
    void send_head(Instant now);
    void refuse_qkey(const wire::Packet& packet, const Arrival& arrival);
    void note(NoticeKind kind, const wire::Packet& packet, const Arrival& arrival,
              std::uint32_t wanted, std::uint32_t found);
    void deliver(Instant now, const wire::Packet& packet, const Arrival& arrival);
    Completion completion_of(Instant now, const wire::Packet& packet, const Arrival& arrival) const;
    void stage(ByteView grh, const wire::Packet& packet, const Completion& completion);

    QueuePair& qp_;
    Psn next_psn_;  // Zero before RTS.
    HeldReceive receive_;
    FarTraffic far_;
};

}  // namespace feroce::transport
