#include "transport/held_receive.hpp"

#include <utility>

#include "mem/scatter.hpp"
#include "transport/memory_names.hpp"

namespace feroce::transport {

bool HeldReceive::take() {
    if (!held_) held_ = qp_.take_receive(qp_.receive_queue(), wqe_);
    return held_;
}

mem::Fault HeldReceive::write(std::uint64_t offset, ByteView bytes) {
    return mem::scatter(qp_.services().memory, qp_.receive_queue().pd(), wqe_.list(), offset,
                        bytes);
}

Completion HeldReceive::completion(Instant now) const {
    Completion completion = qp_.completion_of(now, wqe_.wr_id);
    completion.opcode = WcOpcode::Receive;
    return completion;
}

void HeldReceive::complete(const Completion& completion) {
    held_ = false;
    qp_.services().counters.add(Counter::RdmaReceives);
    qp_.complete_receive(completion);
}

void HeldReceive::fail(Instant now, Psn psn, mem::Fault fault) {
    held_ = false;
    Reason reason;
    reason.rule = fault == mem::Fault::Unmapped ? Rule::LocalMemoryGone : Rule::ReceiveKey;
    reason.status = WcStatus::LocalProtectionError;
    reason.fault = fault;
    if (reason.rule == Rule::ReceiveKey)
        reason.attempt = first_bad(qp_.services().memory, qp_.receive_queue().pd(), wqe_.list(),
                                   mem::Access::LocalWrite);
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
    qp_.services().held.push(qp_, *qp_.init().receive_cq, flushed);
}

}  // namespace feroce::transport
