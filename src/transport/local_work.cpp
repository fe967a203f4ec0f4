#include "transport/local_work.hpp"

#include "base/assert.hpp"
#include "mem/memory.hpp"

namespace feroce::transport {

SendFailure execute_local(QueuePair& qp, std::uint64_t index) {
    mem::Memory& memory = qp.services().memory;
    const SendWqe& wqe = qp.send_queue().at(index);
    ASSERT(is_local(wqe.op));
    SendFailure failure{.status = WcStatus::WindowBindError};
    if (wqe.op == SendOp::BindWindow) {
        mem::WindowBind bind = qp.send_queue().bind(index);
        bind.qpn = qp.qpn();
        bind.pd = qp.init().pd;
        if (!mem::succeeded(memory.bind_window(bind))) failure.rule = Rule::BindRefused;
    } else {
        failure.fault = memory.invalidate_local(qp.init().pd, qp.qpn(), RKey{wqe.operand});
        if (failure.fault != mem::Fault::None) failure.rule = Rule::InvalidateRefused;
    }
    return failure;
}

}  // namespace feroce::transport
