#include "transport/queue_pair.hpp"

#include <cerrno>
#include <new>
#include <span>

#include "base/assert.hpp"
#include "base/probe.hpp"
#include "base/shortage.hpp"
#include "transport/memory_names.hpp"
#include "transport/rc/rc_machine.hpp"
#include "transport/rc/recovery.hpp"
#include "transport/uc/uc_machine.hpp"
#include "transport/ud/ud_machine.hpp"

namespace feroce::transport {

namespace {

template <class T>
Machine* make_in(std::span<std::byte> place, QueuePair& qp) {
    static_assert(sizeof(T) <= QueuePair::kMachineBytes);
    static_assert(alignof(T) <= kCacheLine);
    return new (place.data()) T(qp);
}

Machine* make_machine(std::span<std::byte> place, QueuePair& qp) {
    switch (qp.type()) {
        case QpType::Rc:
        case QpType::XrcInitiator:
        case QpType::XrcTarget:
            return make_in<rc::RcMachine>(place, qp);
        case QpType::Uc:
            return make_in<UcMachine>(place, qp);
        case QpType::Ud:
            return make_in<UdMachine>(place, qp);
    }
    ASSERT(false);
}

bool is_datagram_op(SendOp op) {
    return op == SendOp::Send || op == SendOp::SendImmediate;
}

bool supports(QpType type, SendOp op) {
    switch (type) {
        case QpType::Ud:
            return is_datagram_op(op);
        case QpType::Uc:
            return is_datagram_op(op) || op == SendOp::Write || op == SendOp::WriteImmediate ||
                   op == SendOp::BindWindow || op == SendOp::LocalInvalidate;
        case QpType::XrcTarget:
            return false;
        case QpType::XrcInitiator:  // The two younger operations have no opcode there.
            return op != SendOp::AtomicWrite && op != SendOp::Flush;
        case QpType::Rc:
            return true;
    }
    ASSERT(false);
}

bool is_word_operation(SendOp op) {
    return op == SendOp::CompareSwap || op == SendOp::FetchAdd;
}

// Inline data is read when it is posted, by the CPU.
Error inline_error(mem::Memory& memory, const SendWr& wr, const Error& error) {
    for (const mem::Sge& sge : wr.sges)
        if (memory.far_memory(memory.region_at(sge.address).key) != nullptr)
            return {error.code,
                    "the inline data is in GPU memory, which the CPU cannot read: post it without "
                    "IBV_SEND_INLINE"};
    return error;
}

}  // namespace

QueuePair::QueuePair(Qpn qpn, const QpInit& init, Services& services)
    : send_queue_(init.type, init.capabilities, init.signal_all, services.queue_memory) {
    hot_.qpn = qpn;
    hot_.init = init;
    hot_.services = &services;
    hot_.receive_queue =
        init.srq != nullptr ? init.srq
                            : &own_receive_queue_.emplace(init.pd, init.capabilities.receive_wr_max,
                                                          init.capabilities.receive_sge_max,
                                                          ReceiveQueue::Users::OneQueuePair);
    hot_.machine = make_machine(machine_place_, *this);
}

QueuePair::~QueuePair() {
    hot_.machine->~Machine();
}

QueuePairPtr make_queue_pair(Qpn qpn, const QpInit& init, Services& services) {
    std::pmr::polymorphic_allocator<> memory(services.queue_memory);
    return QueuePairPtr(memory.new_object<QueuePair>(qpn, init, services));
}

void QueuePairDelete::operator()(QueuePair* qp) const {
    std::pmr::polymorphic_allocator<> memory(qp->services().queue_memory);
    memory.delete_object(qp);
}

bool QueuePair::make_recovery() {
    if (recovery_ != nullptr) return true;
    HoldBudget* const budget = hot_.services->hold_budget;
    return budget != nullptr &&
           with_memory([&] { recovery_ = std::make_unique<rc::Recovery>(*budget); });
}

Result<std::uint64_t> QueuePair::check_send(const SendWr& wr) const {
    if (!supports(type(), wr.op))
        return Error{EINVAL, "this operation does not exist on this type of queue pair"};
    switch (state()) {
        case QpState::Reset:
        case QpState::Init:
        case QpState::Rtr:
            return Error{EINVAL, "the queue pair cannot send yet: bring it to RTS"};
        default:
            break;
    }
    const Result<std::uint64_t> length = send_queue_.check(wr);
    if (length && is_word_operation(wr.op) && *length != 8)
        return Error{EINVAL, "an atomic needs exactly eight bytes for its result"};
    return length;
}

Result<void> QueuePair::post_send(Instant now, const SendWr& wr) {
    const Result<std::uint64_t> length = check_send(wr);
    if (!length) return length.error();
    if (const Result<void> posted = send_queue_.post(wr, static_cast<std::uint32_t>(*length));
        !posted)
        return inline_error(hot_.services->memory, wr, posted.error());
    FEROCE_PROBE4(post_send, hot_.qpn.raw, wr.op, *length, wr.wr_id);
    if (state() == QpState::Err || state() == QpState::Sqe) flush_sends(now);
    return {};
}

Result<void> QueuePair::post_receive(Instant now, const ReceiveWr& wr) {
    if (uses_srq()) return Error{EINVAL, "this queue pair takes receives from its SRQ: post there"};
    if (type() == QpType::XrcInitiator || type() == QpType::XrcTarget)
        return Error{EINVAL, "an XRC queue pair has no receive queue"};
    if (state() == QpState::Reset)
        return Error{EINVAL, "the queue pair cannot receive yet: bring it to INIT"};
    TRY(hot_.receive_queue->post(wr));
    if (state() == QpState::Err) flush_receives(now);
    return {};
}

Completion QueuePair::completion_of(Instant now, std::uint64_t wr_id) const {
    Completion completion;
    completion.wr_id = wr_id;
    completion.timestamp_ns = static_cast<std::uint64_t>(now.time_since_epoch().count());
    completion.qpn = hot_.qpn;
    return completion;
}

bool QueuePair::take_receive(ReceiveQueue& queue, ReceiveWqe& into) {
    if (!queue.take(into)) return false;
    if (queue.consume_limit_event())
        hot_.services->events.srq_event(queue, AsyncEventType::SrqLimitReached);
    return true;
}

void QueuePair::tell_drained() {
    hot_.services->events.qp_event(*this, AsyncEventType::SendQueueDrained);
}

void QueuePair::complete_send(Instant now, const SendWqe& wqe, WcStatus status,
                              std::uint32_t reason) {
    if (is_send(wqe.op)) hot_.services->counters.add(Counter::RdmaSends);
    if (status == WcStatus::Success && !wqe.signaled) return;
    Completion completion = completion_of(now, wqe.wr_id);
    completion.status = status;
    completion.opcode = completion_opcode(wqe.op);
    completion.byte_length = wqe.length;
    completion.reason = reason;
    // Of an unreliable queue pair only sends have failed: its receives go on.
    if (status != WcStatus::Success && delivers() && is_reliable()) [[unlikely]]
        return hot_.services->held.push(*this, *hot_.init.send_cq, completion);
    give(*hot_.init.send_cq, completion);
}

void QueuePair::give(CompletionSink& cq, const Completion& completion) {
    if (!cq.push(completion)) [[unlikely]]
        lose_completion();
}

void QueuePair::complete_receive(const Completion& completion) {
    give(*hot_.init.receive_cq, completion);
}

std::uint32_t QueuePair::record(const Reason& reason) {
    Reason full = reason;
    full.qpn = hot_.qpn;
    full.peer = hot_.attributes.destination_qpn;
    full.source = hot_.attributes.address.source;
    full.destination = hot_.attributes.address.destination;
    full.peer_heard = hot_.packets_received > 0;
    name_memory(*this, full);
    if (full.rule == Rule::RetryLimit) full.send_error = hot_.services->transmit.send_error(path());
    const std::uint32_t id = hot_.services->reasons.record(full);
    if (hot_.first_reason == 0) hot_.first_reason = id;
    return id;
}

void QueuePair::enter_error(Instant now) {
    const QpState from = hot_.attributes.state;
    hot_.attributes.state = QpState::Err;
    FEROCE_PROBE3(qp_state, hot_.qpn.raw, from, QpState::Err);
    hot_.machine->on_modify(now, from);
    hot_.flush_waits = delivers();
    flush_sends(now);
    flush_receives(now);
}

void QueuePair::fail(Instant now, const Reason& reason) {
    record(reason);
    enter_error(now);
}

void QueuePair::fail_send(Instant now, const Reason& reason) {
    const std::uint32_t id = record(reason);
    complete_send(now, send_queue_.at(send_queue_.head()), reason.status, id);
    send_queue_.retire();
    enter_error(now);
}

void QueuePair::fail_receive(Instant now, const Reason& reason, Completion receive,
                             CompletionSink* cq) {
    receive.status = reason.status;
    receive.reason = record(reason);
    hot_.services->held.push(*this, *cq, receive);
    enter_error(now);
}

void QueuePair::finish_flush(Instant now) {
    if (!hot_.flush_waits || delivers()) return;
    hot_.flush_waits = false;
    hot_.services->held.give_all(*this);
    flush_sends(now);
    flush_receives(now);
}

void QueuePair::flush_sends(Instant now) {
    if (hot_.flush_waits) return;
    for (; !send_queue_.empty(); send_queue_.retire())
        complete_send(now, send_queue_.at(send_queue_.head()), WcStatus::FlushError,
                      hot_.first_reason);
}

void QueuePair::flush_receives(Instant now) {
    if (hot_.flush_waits) return;
    if (uses_srq()) return hot_.services->events.qp_event(*this, AsyncEventType::QpLastWqeReached);
    if (hot_.init.receive_cq == nullptr) return;
    while (const auto wr_id = hot_.receive_queue->discard()) {
        Completion completion = completion_of(now, *wr_id);
        completion.status = WcStatus::FlushError;
        completion.opcode = WcOpcode::Receive;
        completion.reason = hot_.first_reason;
        hot_.services->held.push(*this, *hot_.init.receive_cq, completion);
    }
}

void QueuePair::clear() {
    send_queue_.clear();
    if (!uses_srq()) hot_.receive_queue->clear();
    hot_.first_reason = 0;
    hot_.completion_lost = hot_.flush_waits = false;
}

void QueuePair::prefetch() const {
    constexpr std::size_t kBeforeMachine = sizeof(QueuePair) - kMachineBytes;
    feroce::prefetch(this, kBeforeMachine + rc::RcMachine::kHotBytes);
}

// One conversation keeps one UDP source port, and different ones spread over several.
Path QueuePair::path() const {
    const AddressVector& to = hot_.attributes.address;
    return {to.source, to.destination, to.traffic_class, to.hop_limit,
            slot_of(hot_.attributes.destination_qpn)};
}

}  // namespace feroce::transport
