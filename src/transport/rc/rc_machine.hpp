// A reliable connection, plain or extended (XRC): a Requester and a Responder that know nothing of
// each other. An XRC initiator only asks, an XRC target only answers.
#pragma once

#include "transport/queue_pair.hpp"
#include "transport/rc/requester.hpp"
#include "transport/rc/responder.hpp"

namespace feroce::transport::rc {

class RcMachine final : public Machine {
public:
    static constexpr std::size_t kHotBytes = 256;  // From its start.

    explicit RcMachine(QueuePair& qp);

    void on_packet(Instant now, const wire::Packet& packet, const Arrival& arrival) override;
    bool expects(const wire::Packet& packet) const override;
    void pump(Instant now, std::uint32_t packets_max) override;
    bool wants_to_send(Instant now) const override;
    bool owes_only_ack(Instant now) const override;
    bool build_owed_ack(AckBytes into) override { return responder_.build_owed_ack(into); }
    bool owes_ack() const override { return responder_.owes_ack(); }
    bool owes_answers() const override { return responder_.owes_answers(); }
    bool acknowledged(PacketNumber number) const override {
        return responder_.acknowledged(number);
    }
    bool waits_for_window(Instant now) const override { return requester_.waits_for_window(now); }
    void on_timer(Instant now) override;
    void on_copies() override { requester_.on_copies(); }
    bool ask_peer() override;
    Instant deadline() const override { return requester_.deadline(); }
    Progress progress() const override;
    void reserve() override;
    void on_modify(Instant now, QpState from) override;
    const char* check_invariants() const override;

private:
    void tell_when_drained();

    QueuePair& qp_;
    wire::Service service_;
    bool drain_pending_ = false;  // In SQD, and the program asked to be told when it is empty.
    Requester requester_;
    Responder responder_;
};

}  // namespace feroce::transport::rc
