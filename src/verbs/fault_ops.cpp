#include "verbs/fault_ops.hpp"

#include "process/injected.hpp"
#include "verbs/common.hpp"
#include "verbs/instance.hpp"
#include "verbs/objects.hpp"
#include "verbs/parts.hpp"

namespace feroce::verbs {
namespace {

using process::CallFaults;
using process::FaultEvent;

static_assert(static_cast<int>(FaultEvent::CqError) == IBV_EVENT_CQ_ERR);
static_assert(static_cast<int>(FaultEvent::QpFatal) == IBV_EVENT_QP_FATAL);
static_assert(static_cast<int>(FaultEvent::QpRequestError) == IBV_EVENT_QP_REQ_ERR);
static_assert(static_cast<int>(FaultEvent::QpAccessError) == IBV_EVENT_QP_ACCESS_ERR);
static_assert(static_cast<int>(FaultEvent::DeviceFatal) == IBV_EVENT_DEVICE_FATAL);
static_assert(static_cast<int>(FaultEvent::PortActive) == IBV_EVENT_PORT_ACTIVE);
static_assert(static_cast<int>(FaultEvent::PortError) == IBV_EVENT_PORT_ERR);
static_assert(static_cast<int>(FaultEvent::SrqError) == IBV_EVENT_SRQ_ERR);
static_assert(static_cast<int>(FaultEvent::SrqLimitReached) == IBV_EVENT_SRQ_LIMIT_REACHED);
static_assert(static_cast<int>(FaultEvent::GidChange) == IBV_EVENT_GID_CHANGE);

bool is_of_device(FaultEvent event) {
    return event == FaultEvent::DeviceFatal || event == FaultEvent::PortActive ||
           event == FaultEvent::PortError || event == FaultEvent::GidChange;
}

// An object that was destroyed, or is of the parent process, is refused by the plain call.
CallFaults::Verdict ask(ibv_context* context, const char* call) {
    CallFaults* faults = process::call_faults();
    if (faults == nullptr || !alive(context)) return {};
    CallFaults::Verdict verdict = faults->next(call);
    if (verdict.event && is_of_device(*verdict.event)) {
        instance_of(context).raise_fault(*verdict.event, verdict.call);
        verdict.event.reset();
    }
    return verdict;
}

void log_raised(const CallFaults::Verdict& verdict) {
    process::log(process::LogLevel::Warn, "%s: %s (%s)", verdict.call, process::kInjected,
                 process::name_of(*verdict.event));
}

// As the device would: the queue pair fails, its requests are flushed, and the event says why.
void raise_on(Qp& qp, const CallFaults::Verdict& verdict) {
    log_raised(verdict);
    process::Process& process = process_of(qp.base.qp_base.context);
    process::Shard::Session session(*qp.shard);
    process.note_raised(verdict.call, *verdict.event, qp.machine);
    transport::QpAttributes wanted = qp.machine->attributes();
    wanted.state = transport::QpState::Err;
    (void)session.engine().modify_qp(
        session.now(), *qp.machine, wanted,
        {static_cast<std::uint32_t>(transport::Attribute::State)});  // RESET has nothing to flush.
    instance_of(qp.base.qp_base.context)
        .event_listener()
        .on_qp_event(*qp.machine, static_cast<transport::AsyncEventType>(*verdict.event));
}

int refusal(const CallFaults::Verdict& verdict) {
    return verdict.error == 0 ? 0 : refuse(verdict.call, {verdict.error, process::kInjected});
}

CallFaults::Verdict ask_about(ibv_cq* cq, const char* call) {
    const CallFaults::Verdict verdict = ask(cq->context, call);
    if (verdict.event) {
        log_raised(verdict);
        process_of(cq->context).note_raised(verdict.call, *verdict.event, nullptr);
        cq_of(cq).queue->overrun();
    }
    return verdict;
}

}  // namespace

bool faults_wanted() {
    return process::call_faults() != nullptr;
}

int fault_of(ibv_qp* base, const char* call) {
    Qp& qp = qp_of(base);
    if (qp.machine == nullptr) return 0;
    const CallFaults::Verdict verdict = ask(base->context, call);
    if (verdict.event) raise_on(qp, verdict);
    if (verdict.error == 0) return 0;
    return refuse(verdict.call, {verdict.error, process::kInjected}, *qp.machine);
}

int fault_of(ibv_srq* base, const char* call) {
    const CallFaults::Verdict verdict = ask(base->context, call);
    if (verdict.event) {
        log_raised(verdict);
        process_of(base->context).note_raised(verdict.call, *verdict.event, nullptr);
        instance_of(base->context)
            .event_listener()
            .on_srq_event(*srq_of(base).queue,
                          static_cast<transport::AsyncEventType>(*verdict.event));
    }
    return refusal(verdict);
}

int fault_of(ibv_cq* base, const char* call) {
    return refusal(ask_about(base, call));
}

PollFault fault_of_poll(ibv_cq* base, const char* call) {
    if (!alive(base->context)) return {};
    Cq& cq = cq_of(base);
    // What comes after this look is for the next poll: it would be taken without being counted.
    if (!look_for_completions(cq)) return {0, true};
    const CallFaults::Verdict verdict = ask_about(base, call);
    cq.late.store(verdict.late, std::memory_order_relaxed);
    if (verdict.late) cq.queue->announce();
    return {refusal(verdict), verdict.late};
}

void tell_late(ibv_cq* base) {
    Cq& cq = cq_of(base);
    if (cq.late.load(std::memory_order_relaxed) && !cq.queue->empty()) cq.queue->announce();
}

}  // namespace feroce::verbs
