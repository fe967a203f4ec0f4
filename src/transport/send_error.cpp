#include "transport/send_error.hpp"

namespace feroce::transport {

SendFailure key_failure(mem::Fault fault) {
    return {.rule = fault == mem::Fault::Unmapped ? Rule::LocalMemoryGone : Rule::LocalKey,
            .status = WcStatus::LocalProtectionError,
            .fault = fault};
}

void fail_unreliable_send(Instant now, QueuePair& qp, Psn psn, const SendFailure& failure) {
    SendQueue& queue = qp.send_queue();
    const SendWqe& wqe = queue.at(queue.head());
    Reason reason;
    reason.rule = failure.rule;
    reason.status = failure.status;
    reason.fault = failure.fault;
    reason.psn = psn;
    reason.wr_id = wqe.wr_id;
    qp.complete_send(now, wqe, failure.status, qp.record(reason));
    queue.retire();
    qp.set_state(QpState::Sqe);
    qp.flush_sends(now);
}

}  // namespace feroce::transport
