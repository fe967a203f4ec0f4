#include "device/engine.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "base/probe.hpp"
#include "base/ring_tools.hpp"
#include "base/rollback.hpp"

namespace feroce::device {

using transport::Attribute;
using transport::AttributeMask;
using transport::QpAttributes;
using transport::QpState;
using transport::QpType;
using transport::QueuePair;

namespace {

// Packets one queue pair sends before the next one has its turn: one full segmented send.
constexpr std::uint32_t kTurnPackets = transport::TransmitBatch::kRunPacketsMax;

bool uses_window(QpType type) {
    return type == QpType::Rc || type == QpType::XrcInitiator;
}

QpAttributes fresh_attributes(const transport::QpInit& init) {
    QpAttributes out;
    out.path_mtu = init.datagram_mtu;
    return out;
}

Result<void> check_values(const QpAttributes& to, AttributeMask mask) {
    if (mask.has(Attribute::PkeyIndex) && to.pkey_index != 0)
        return Error{EINVAL, "there is only one P_Key: index 0"};
    if (mask.has(Attribute::Port) && to.port != 1) return Error{EINVAL, "there is only port 1"};
    if (mask.has(Attribute::PathMtu) &&
        (to.path_mtu < 256 || to.path_mtu > 4096 || !std::has_single_bit(to.path_mtu)))
        return Error{EINVAL, "the path MTU must be 256, 512, 1024, 2048 or 4096"};
    if (mask.has(Attribute::Timeout) && to.timeout > 31)
        return Error{EINVAL, "timeout must be 0 to 31"};
    if (mask.has(Attribute::MinRnrTimer) && to.min_rnr_timer > 31)
        return Error{EINVAL, "min_rnr_timer must be 0 to 31"};
    if (mask.has(Attribute::AddressVector) && !to.address.global)
        return Error{EINVAL, "RoCE needs a global address: set is_global, dgid and sgid_index"};
    return {};
}

}  // namespace

Engine::Engine(const Config& config, const Parts& parts)
    : config_(config),
      parts_(parts),
      transmit_(parts.port, config.arena_bytes),
      hold_budget_(config.held_bytes_max),
      services_{parts.memory, transmit_, counters_,      reasons_,
                *this,        held_,     &queue_memory_, nullptr},
      qps_(config.slot, config.qp_max, parts.random),
      timers_(config.qp_max + 1),
      windows_(config.window),
      ready_(config.qp_max + 1) {
    if (config.held_bytes_max > 0) services_.hold_budget = &hold_budget_;
    if (parts.copies != nullptr) services_.copies = &copies_.emplace(*parts.copies);
}

Engine::~Engine() {
    qps_.for_each([this](QueuePair& qp) { destroy_qp(qp); });
}

Result<QueuePair*> Engine::create_qp(const transport::QpInit& init) {
    const Result<Qpn> qpn = qps_.allocate();
    if (!qpn) return qpn.error();
    Rollback give_back([&] { qps_.give_back(*qpn); });
    QueuePair& qp = add_qp(*qpn, init);
    give_back.keep();
    return &qp;
}

Result<QueuePair*> Engine::create_gsi_qp(const transport::QpInit& init) {
    if (qps_.find(kGeneralServicesQpn) != nullptr)
        return Error{EBUSY, "the connection manager's queue pair exists already"};
    return &add_qp(kGeneralServicesQpn, init);
}

QueuePair& Engine::add_qp(Qpn qpn, const transport::QpInit& init) {
    transport::QueuePairPtr qp = transport::make_queue_pair(qpn, init, services_);
    // An XRC target has no protection domain of its own.
    if (init.type != transport::QpType::XrcTarget)
        ASSERT(parts_.memory.pin_pd(init.pd).has_value());
    qp->set_attributes(fresh_attributes(init));
    if (init.type == transport::QpType::Ud) parts_.port.tell_destinations();
    QueuePair& made = *qp;
    qps_.insert(std::move(qp));
    return made;
}

void Engine::destroy_qp(QueuePair& qp) {
    observe(qp);
    to_reset(last_run_, qp);
    if (copies_) copies_->forget(qp);
    groups_.remove_all(qp, [this](const Gid& group) { parts_.port.leave_group(group); });
    if (qp.device().is_ready)
        remove_if(ready_, [&qp](const QueuePair* other) { return other == &qp; });
    timers_.remove(qp);
    parts_.memory.unbind_windows_of(qp.qpn());
    if (qp.type() != transport::QpType::XrcTarget) parts_.memory.unpin_pd(qp.init().pd);
    qps_.erase(qp.qpn());
}

Result<void> Engine::check_modify(const QueuePair& qp, const QpAttributes& attributes,
                                  AttributeMask mask) {
    const QpState from = qp.state();
    const QpState to = mask.has(Attribute::State) ? attributes.state : from;
    if (mask.has(Attribute::CurrentState) && attributes.current_state != from)
        return Error{EINVAL, "the queue pair is not in the state that cur_qp_state says"};
    TRY(transport::check_modify(qp.type(), from, to, mask));
    return check_values(attributes, mask);
}

Result<void> Engine::modify_qp(Instant now, QueuePair& qp, const QpAttributes& attributes,
                               AttributeMask mask) {
    TRY(check_modify(qp, attributes, mask));
    const QpState from = qp.state();
    const QpState to = mask.has(Attribute::State) ? attributes.state : from;
    if (to == QpState::Reset) {
        to_reset(now, qp);
        FEROCE_PROBE3(qp_state, qp.qpn().raw, from, to);
        return {};
    }
    if (to == QpState::Err) {  // Tells tracers itself.
        if (from != QpState::Err) {
            transport::Reason reason;
            reason.rule = transport::Rule::MovedToError;
            reason.status = transport::WcStatus::FlushError;
            qp.fail(now, reason);
        }
        return {};
    }
    apply_modify(now, qp, attributes, mask);
    settle(now, qp);
    if (from != to) FEROCE_PROBE3(qp_state, qp.qpn().raw, from, to);
    return {};
}

// To a state other than RESET and ERR. Where memory is wanting nothing has changed.
void Engine::apply_modify(Instant now, QueuePair& qp, const QpAttributes& attributes,
                          AttributeMask mask) {
    const QpAttributes before = qp.attributes();
    const QpState from = qp.state();
    transport::SendWindow* acquired = nullptr;
    Rollback restore([&] {
        qp.set_attributes(before);
        if (acquired != nullptr) windows_.release(*acquired);
    });
    QpAttributes after = before;
    transport::apply(attributes, mask, after);
    qp.set_attributes(after);
    const bool begins =
        from == QpState::Init && qp.state() == QpState::Rtr && uses_window(qp.type());
    const bool moves = from == QpState::Sqd && mask.has(Attribute::AddressVector);
    if (begins || (moves && qp.window() != nullptr)) acquired = &acquire_window(qp);
    qp.machine().reserve();
    restore.keep();
    if (begins) qp.set_window(acquired);
    if (moves) follow_path(qp, acquired);
    if (from == QpState::Sqe) qp.forget_reason();
    qp.machine().on_modify(now, from);
}

transport::SendWindow& Engine::acquire_window(const QueuePair& qp) {
    transport::SendWindow& window =
        windows_.acquire(qp.attributes().address.destination, qp.attributes().destination_qpn);
    window.set_by_ring(goes_by_ring(qp));
    return window;
}

bool Engine::goes_by_ring(const QueuePair& qp) const {
    return qp.type() != QpType::Ud && qp.state() >= QpState::Rtr &&
           parts_.port.goes_by_ring(qp.path(), slot_of(qp.attributes().destination_qpn));
}

// The peer may be somewhere else now, or come by another source port. What is in flight is counted
// where the next acknowledgement will take it off.
void Engine::follow_path(QueuePair& qp, transport::SendWindow* next) {
    qp.device().peer_source_port = 0;
    if (next == nullptr) return;
    const std::uint32_t in_flight = qp.machine().progress().in_flight_bytes;
    windows_.remove_waiter(qp);
    qp.window()->on_forgotten(in_flight);
    windows_.release(*qp.window());
    qp.set_window(next);
    next->adopt(in_flight);
}

// As IBTA has it for a completion queue that is overrun: a queue pair that cannot report what it
// did goes to ERR. The completion queue has told its owner itself; see CompletionListener.
void Engine::fail_overflowed(Instant now, QueuePair& qp) {
    qp.forget_lost_completion();
    if (qp.state() == QpState::Err || qp.state() == QpState::Reset) return;
    transport::Reason reason;
    reason.rule = transport::Rule::CompletionOverflow;
    reason.status = transport::WcStatus::FlushError;
    qp.fail(now, reason);
    qp.forget_lost_completion();  // Flushing may lose more.
    qp_event(qp, transport::AsyncEventType::QpFatal);
}

void Engine::observe(QueuePair& qp) {
    transport::NoticeLog& log = reasons_.notices;
    if (uses_window(qp.type())) log.settle(qp.qpn(), qp.machine().progress().expected);
    transport::Notice notice;
    notice.state = qp.state();
    notice.qpn = qp.qpn();
    notice.peer = qp.attributes().destination_qpn;
    const transport::CompletionSink* const queues[] = {qp.init().send_cq, qp.init().receive_cq};
    for (const transport::CompletionSink* queue : queues) {
        if (queue == nullptr || queue->overflowed_at() == 0) continue;
        notice.kind = transport::NoticeKind::CompletionsLost;
        notice.wanted = queue->overflowed_at();
        log.note(notice);
    }
    if (qp.state() < QpState::Rtr || qp.type() == QpType::Ud) return;
    notice.error = parts_.port.send_error(qp.path());
    if (notice.error == 0) return;
    notice.kind = transport::NoticeKind::SendRefused;
    notice.source = qp.attributes().address.source;
    notice.destination = qp.attributes().address.destination;
    log.note(notice);
}

void Engine::to_reset(Instant now, QueuePair& qp) {
    const QpState from = qp.state();
    qp.set_attributes(fresh_attributes(qp.init()));
    qp.machine().on_modify(now, from);
    qp.clear();
    qp.device().peer_source_port = 0;
    held_.drop(qp);
    if (qp.init().send_cq != nullptr) qp.init().send_cq->purge(qp.qpn());
    if (qp.init().receive_cq != nullptr) qp.init().receive_cq->purge(qp.qpn());
    if (qp.window() == nullptr) return;
    windows_.remove_waiter(qp);
    windows_.release(*qp.window());
    qp.set_window(nullptr);
}

Result<void> Engine::attach_multicast(QueuePair& qp, const Gid& group) {
    if (qp.type() != QpType::Ud || !group.is_multicast())
        return Error{EINVAL, "only a UD queue pair can join, and only a multicast address"};
    const Result<bool> is_new = groups_.attach(group, qp);
    if (!is_new) return is_new.error();
    if (!*is_new) return {};
    Rollback detach([&] { ASSERT(groups_.detach(group, qp).has_value()); });
    if (parts_.port.join_group(group)) {
        detach.keep();
        return {};
    }
    return Error{EADDRNOTAVAIL, "the network interface cannot join this multicast group"};
}

Result<void> Engine::detach_multicast(QueuePair& qp, const Gid& group) {
    const Result<bool> was_last = groups_.detach(group, qp);
    if (!was_last) return was_last.error();
    if (*was_last) parts_.port.leave_group(group);
    return {};
}

Result<void> Engine::post_send(Instant now, QueuePair& qp, const transport::SendWr& wr) {
    if (!qp.device().is_ready) qp.prefetch();  // Else it was used a moment ago.
    const Result<void> posted = qp.post_send(now, wr);
    if (!posted) return posted;
    if (qp.lost_completion()) [[unlikely]]
        fail_overflowed(now, qp);
    make_ready(qp);
    return {};
}

Result<void> Engine::post_sends(Instant now, QueuePair& qp,
                                std::span<const transport::SendWr> list) {
    Result<void> good;
    if (list.size() > qp.send_queue().room()) good = Error{ENOMEM, "the send queue is full"};
    for (auto wr = list.begin(); good && wr != list.end(); ++wr)
        if (const auto length = qp.check_send(*wr); !length) good = length.error();
    if (!good) return good;
    for (const transport::SendWr& wr : list) TRY(post_send(now, qp, wr));
    return {};
}

Result<void> Engine::post_receive(Instant now, QueuePair& qp, const transport::ReceiveWr& wr) {
    return qp.post_receive(now, wr);
}

bool Engine::ask_peer(Instant now, QueuePair& qp) {
    bool asked = false;
    call_machine(now, qp, [&asked](transport::Machine& machine) { asked = machine.ask_peer(); });
    if (asked) transmit_.flush();  // Nothing else may be due for a long time.
    return asked;
}

void Engine::give_up_peer(Instant now, QueuePair& qp) {
    if (qp.state() < QpState::Rtr || qp.state() == QpState::Err || !qp.send_queue().empty()) return;
    transport::Reason reason;
    reason.rule = transport::Rule::PeerSilent;
    reason.status = transport::WcStatus::FlushError;
    reason.psn = qp.machine().progress().unacknowledged;
    qp.fail(now, reason);
}

void Engine::copy_done(Instant now, mem::CopyToken token, bool good) {
    QueuePair* const qp = copies_->finish(token, good);
    if (qp == nullptr) return;
    call_machine(now, *qp, [now, qp](transport::Machine& machine) {
        machine.on_copies();
        qp->finish_flush(now);
    });
    settle(now, *qp);
}

void Engine::make_ready(QueuePair& qp) {
    if (qp.device().is_ready) return;
    qp.device().is_ready = true;
    ready_.push(&qp);
}

void Engine::line_up(Instant now, QueuePair& qp, std::uint32_t left) {
    const transport::Machine& machine = qp.machine();
    // Asked first: by a ring the peer may open the window between the two, as it reads. What it
    // opens stays open.
    const bool waits = machine.waits_for_window(now);
    if (machine.wants_to_send(now)) {
        make_ready(qp);
    } else if (waits) {
        const bool goes_on = left > 0 && left < kTurnPackets && !qp.window()->is_by_ring();
        goes_on ? windows_.add_first(qp, left) : windows_.add_waiter(qp);
    }
}

void Engine::settle(Instant now, QueuePair& qp) {
    if (!qp.device().is_ready) line_up(now, qp);
    if (qp.device().is_ready) return;  // Its turn comes, and the timer is seen to after it.
    timers_.update(qp, qp.machine().deadline());
}

void Engine::run(Instant now) {
    last_run_ = now;
    if (parts_.port.ring_changes() != ring_changes_) [[unlikely]]
        follow_rings();
    run_timers(now);
    // In turns: a turn goes on when the window opens again, until all its packets are sent. One
    // that ended each time would make as many acknowledgements as there are queue pairs.
    windows_.wake(now, [this, now](QueuePair& qp, std::uint32_t left) {
        if (qp.window()->is_by_ring()) return make_ready(qp);
        seat(now, qp, take_turn(now, qp, left > 0 ? left : kTurnPackets));
    });
    run_ready(now);
    transmit_.flush();
    if (left_behind_ && !owes_acks()) [[unlikely]] {
        left_behind_ = false;
        parts_.port.take_legacies_back();
    }
    while (QueuePair* qp = held_.release()) fail_overflowed(now, *qp);
    counters_.set(transport::Counter::SentPackets, transmit_.packets_sent());
    counters_.set(transport::Counter::SentBytes, transmit_.bytes_sent());
    counters_.set(transport::Counter::SendError, parts_.port.unsent_packets());
    const RingCounts by_rings = parts_.port.ring_counts();
    counters_.set(transport::Counter::RingSentPackets, by_rings.sent);
    counters_.set(transport::Counter::RingFull, by_rings.overflowed);
    counters_.set(transport::Counter::RingMemory, by_rings.memory);
    counters_.set(transport::Counter::RingRefused, by_rings.refused);
}

void Engine::follow_rings() {
    ring_changes_ = parts_.port.ring_changes();
    qps_.for_each([this](QueuePair& qp) {
        if (qp.window() != nullptr) qp.window()->set_by_ring(goes_by_ring(qp));
    });
}

void Engine::run_timers(Instant now) {
    while (QueuePair* qp = timers_.pop_due(now)) {
        if (qp->machine().deadline() <= now)
            call_machine(now, *qp, [now](transport::Machine& machine) { machine.on_timer(now); });
        ASSERT(qp->machine().deadline() > now);  // Else this loop would never end.
        settle(now, *qp);
    }
}

// Each queue pair that is ready now has one turn; whoever wants more waits for the next run.
void Engine::run_ready(Instant now) {
    for (std::size_t turns = ready_.size(); turns > 0; --turns) {
        QueuePair* qp = ready_.front();
        ready_.pop();
        if (!ready_.empty()) ready_.front()->prefetch();
        qp->device().is_ready = false;
        const std::uint32_t left = take_turn(now, *qp, kTurnPackets);
        if (turns == 1) transmit_.flush();  // The peer need not wait for what follows.
        seat(now, *qp, left);
    }
}

std::uint32_t Engine::take_turn(Instant now, QueuePair& qp, std::uint32_t packets) {
    const std::uint64_t before = transmit_.packets_sent();
    const std::uint32_t out = qp.window() != nullptr ? qp.window()->in_flight() : 0;
    call_machine(now, qp,
                 [now, packets](transport::Machine& machine) { machine.pump(now, packets); });
    const std::uint64_t sent = transmit_.packets_sent() - before;
    // Answers alone begin no turn, or one that owes them would always go first.
    if (qp.window() == nullptr || qp.window()->in_flight() == out) return packets;
    return sent < packets ? packets - static_cast<std::uint32_t>(sent) : 0;
}

void Engine::seat(Instant now, QueuePair& qp, std::uint32_t left) {
    line_up(now, qp, left);
    timers_.update(qp, qp.machine().deadline());
}

bool Engine::has_work() const {
    return !ready_.empty() || held_.has_work() || windows_.next_pacing(last_run_) <= last_run_;
}

bool Engine::owes_only_acks(Instant now) const {
    constexpr std::size_t kFew = 4;
    if (ready_.empty() || ready_.size() > kFew) return false;
    for (std::size_t i = 0; i < ready_.size(); ++i)
        if (!ready_[i]->machine().owes_only_ack(now)) return false;
    return windows_.next_pacing(now) > now;
}

// Still: behind more answers than go in a turn, or a copy from far memory.
bool Engine::owes_acks() const {
    for (std::size_t i = 0; i < ready_.size(); ++i)
        if (ready_[i]->machine().owes_ack()) return true;
    return false;
}

// Asked first, because by the network there is nothing to do. XRC targets have no window.
bool Engine::leave_acks_behind() {
    std::array<std::byte, transport::kAckSize> ack;
    for (std::size_t i = 0; i < ready_.size(); ++i) {
        QueuePair& qp = *ready_[i];
        const SlotNumber heir = slot_of(qp.attributes().destination_qpn);
        if (!parts_.port.inherits(qp.path(), heir)) continue;
        if (qp.machine().owes_answers()) return false;  // They acknowledge, too.
        if (!qp.machine().build_owed_ack(ack)) continue;
        left_behind_ = true;
        if (!parts_.port.leave_behind(qp.path(), heir, ack)) return false;
    }
    return true;
}

Instant Engine::next_wakeup() const {
    if (!ready_.empty() || held_.has_work()) return last_run_;
    return std::min(timers_.next(), windows_.next_pacing(last_run_));
}

void Engine::qp_event(QueuePair& qp, transport::AsyncEventType type) {
    parts_.events.on_qp_event(qp, type);
}

void Engine::srq_event(transport::ReceiveQueue& srq, transport::AsyncEventType type) {
    parts_.events.on_srq_event(srq, type);
}

transport::XrcTarget Engine::find_xrc_srq(SrqNumber number, std::uint32_t xrc_domain) {
    return parts_.xrc.find(number, xrc_domain);
}

}  // namespace feroce::device
