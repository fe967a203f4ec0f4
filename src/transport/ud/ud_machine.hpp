// UdMachine: unreliable datagrams. One request is one packet and is complete when that packet is in
// the batch; one packet is one receive. Nothing is remembered between packets but the next PSN and
// a receive that was too small for a datagram.
#pragma once

#include <cstdint>

#include "base/psn.hpp"
#include "transport/held_receive.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::transport {

class UdMachine final : public Machine {
public:
    explicit UdMachine(QueuePair& qp) : qp_(qp), receive_(qp) {}

    void on_packet(Instant now, const wire::Packet& packet, const Arrival& arrival) override;
    void pump(Instant now, std::uint32_t packets_max) override;
    bool wants_to_send(Instant now) const override;
    void on_timer(Instant) override {}
    Progress progress() const override;
    Instant deadline() const override { return kNever; }
    void on_modify(Instant now, QpState from) override;

private:
    void send_head(Instant now);
    void refuse_qkey(const wire::Packet& packet, const Arrival& arrival);
    void note(NoticeKind kind, const wire::Packet& packet, const Arrival& arrival,
              std::uint32_t wanted, std::uint32_t found);
    void deliver(Instant now, const wire::Packet& packet, const Arrival& arrival);

    QueuePair& qp_;
    Psn next_psn_;  // Zero before RTS.
    HeldReceive receive_;
};

}  // namespace feroce::transport
