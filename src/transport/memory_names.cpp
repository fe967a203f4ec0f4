#include "transport/memory_names.hpp"

#include "mem/touch.hpp"

namespace feroce::transport {
namespace {

bool is_atomic(SendOp op) {
    return op == SendOp::CompareSwap || op == SendOp::FetchAdd;
}

mem::Attempt asked_here(QueuePair& qp) {
    const SendQueue& queue = qp.send_queue();
    if (queue.empty()) return {};
    const SendWqe& wqe = queue.at(queue.head());
    const bool answered = wqe.op == SendOp::Read || is_atomic(wqe.op);
    return first_bad(qp.services().memory, qp.init().pd, queue.sges(queue.head()),
                     answered ? mem::AccessSet(mem::Access::LocalWrite) : mem::AccessSet());
}

mem::Attempt asked_of_peer(const QueuePair& qp) {
    const SendQueue& queue = qp.send_queue();
    if (queue.empty()) return {};
    const SendWqe& wqe = queue.at(queue.head());
    mem::Attempt out{wqe.rkey.raw, {}, wqe.remote_address, wqe.length};
    if (wqe.op == SendOp::Read) out.need = mem::Access::RemoteRead;
    if (is_atomic(wqe.op)) out.need = mem::Access::RemoteAtomic;
    if (wqe.op == SendOp::Write || wqe.op == SendOp::WriteImmediate ||
        wqe.op == SendOp::AtomicWrite)
        out.need = mem::Access::RemoteWrite;
    return out.need == mem::AccessSet() ? mem::Attempt() : out;
}

}  // namespace

mem::Attempt first_bad(const mem::Memory& memory, PdId pd, std::span<const mem::Sge> list,
                       mem::AccessSet need) {
    for (const mem::Sge& sge : list)
        if (memory.local(pd, sge.lkey, sge.address, sge.length, need).fault != mem::Fault::None)
            return {sge.lkey.raw, need, sge.address, sge.length};
    return {};
}

void name_memory(QueuePair& qp, Reason& reason) {
    mem::Memory& memory = qp.services().memory;
    switch (reason.rule) {
        case Rule::LocalMemoryGone:
        case Rule::RemoteMemoryGone:
            reason.region = memory.region_at(mem::last_unmapped());
            return;
        case Rule::PeerRefused:
            reason.attempt = asked_of_peer(qp);
            return;
        case Rule::LocalKey:
            reason.attempt = asked_here(qp);
            break;
        default:
            break;
    }
    if (reason.attempt.length == 0) return;
    reason.region = memory.region_with(reason.attempt.key);
    reason.had_key = memory.had_key(reason.attempt.key);
}

}  // namespace feroce::transport
