#include "transport/held_receive.hpp"

#include <utility>

#include "mem/scatter.hpp"

namespace feroce::transport {

bool HeldReceive::take() {
    ReceiveQueue& queue = qp_.receive_queue();
    if (held_) return true;
    held_ = queue.take(wqe_);
    if (held_ && queue.consume_limit_event())
        qp_.services().events.srq_event(queue, AsyncEventType::SrqLimitReached);
    return held_;
}

mem::Fault HeldReceive::write(std::uint64_t offset, ByteView bytes) {
    return mem::scatter(qp_.services().memory, qp_.receive_queue().pd(), wqe_.list(), offset,
                        bytes);
}

Completion HeldReceive::completion(Instant now) const {
    Completion completion;
    completion.wr_id = wqe_.wr_id;
    completion.timestamp_ns = static_cast<std::uint64_t>(now.time_since_epoch().count());
    completion.opcode = WcOpcode::Receive;
    completion.qpn = qp_.qpn();
    return completion;
}

void HeldReceive::complete(const Completion& completion) {
    held_ = false;
    qp_.complete_receive(completion);
}

void HeldReceive::fail(Instant now, Psn psn, mem::Fault fault) {
    held_ = false;
    Reason reason;
    reason.rule = Rule::ReceiveKey;
    reason.status = WcStatus::LocalProtectionError;
    reason.fault = fault;
    reason.at_responder = true;
    reason.psn = psn;
    reason.wr_id = wqe_.wr_id;
    qp_.fail_receive(now, reason, completion(now), qp_.init().receive_cq);
}

void HeldReceive::flush(Instant now) {
    if (!std::exchange(held_, false)) return;
    Completion flushed = completion(now);
    flushed.status = WcStatus::FlushError;
    flushed.reason = qp_.first_reason();
    qp_.complete_receive(flushed);
}

}  // namespace feroce::transport
