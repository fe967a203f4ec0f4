// For tests of this room: queue pairs that go nowhere. Everything a queue pair borrows lives here,
// so a QpMaker outlives what it makes.
#pragma once

#include <span>

#include "base/random.hpp"
#include "mem/memory.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::device {

class QpMaker final : transport::RunSink, transport::EventSink, transport::CompletionSink {
public:
    transport::QueuePairPtr make(Qpn qpn) {
        transport::QpInit init;
        init.pd = pd_;
        init.send_cq = this;
        init.receive_cq = this;
        return transport::make_queue_pair(qpn, init, services_);
    }
    transport::QueuePairPtr make(std::uint32_t qpn) { return make(Qpn{qpn}); }

private:
    void transmit(std::span<const transport::TransmitRun>) override {}
    void qp_event(transport::QueuePair&, transport::AsyncEventType) override {}
    void srq_event(transport::ReceiveQueue&, transport::AsyncEventType) override {}
    transport::XrcTarget find_xrc_srq(SrqNumber, std::uint32_t) override { return {}; }
    bool push(const transport::Completion&) override { return true; }

    Prng random_{1};
    mem::Memory memory_{mem::Limits{}, random_};
    PdId pd_ = memory_.alloc_pd().value();
    transport::TransmitBatch batch_{*this, 256 * 1024};
    transport::Counters counters_;
    transport::ReasonLog reasons_;
    transport::HeldCompletions held_;
    transport::Services services_{memory_, batch_, counters_, reasons_, *this, held_};
};

}  // namespace feroce::device
