#include "sim/workload/endpoint.hpp"

#include <cstring>

#include "base/assert.hpp"
#include "transport/ud/grh.hpp"

namespace feroce::sim {

using mem::Access;
using transport::Completion;
using transport::kGrhBytes;
using transport::QpType;
using transport::SendOp;
using transport::WcOpcode;
using transport::WcStatus;

Endpoint::Endpoint(Context& context, Station& station, const ConnectionPlan& plan, QpType type)
    : context_(context), station_(station), plan_(plan), type_(type) {}

QueueKey Endpoint::queue(bool receive) {
    return {node(), qp_->qpn().raw, receive};
}

void Endpoint::lay_out() {
    Arena& arena = station_.node().arena();
    const Swarm& swarm = context_.swarm;
    const std::uint64_t bytes = swarm.message_max + 16 + kGrhBytes;
    locals_ = Slots(arena.allocate(bytes * (swarm.depth + 1)), bytes);
    targets_ = Slots(arena.allocate(bytes * (swarm.depth + 1)), bytes);
    word_ = station_.claim_word();
    own_pool_ = std::make_unique<ReceivePool>(context_, station_,
                                              Slots(arena.allocate(bytes * swarm.receives), bytes),
                                              ReceivePool::kFirstOwn + word_);
}

void Endpoint::open() {
    Node& node = station_.node();
    const PdId pd = station_.pd();
    const auto far = [this] { return context_.draws_far(); };
    local_keys_ = register_range(node, pd, locals_.region(), Access::LocalWrite, far());
    target_keys_ = register_range(
        node, pd, targets_.region(),
        Access::LocalWrite | Access::RemoteWrite | Access::RemoteRead | Access::MwBind, far());
    own_pool_->set_key(
        register_range(node, pd, own_pool_->region(), Access::LocalWrite, far()).lkey);
    local_registered_ = target_registered_ = true;

    if (qp_ == nullptr) create_qp();
    if (!shares_receives() && type_ != QpType::XrcInitiator) own_pool_->serve(qp_);
    if (type_ == QpType::Rc && context_.swarm.has(SendOp::SendInvalidate)) {
        const auto window = node.memory().allocate_window(pd, mem::WindowType::Type2);
        ASSERT(window.has_value());
        window_key_ = *window;
        window_ = Window::Free;
    }
}

void Endpoint::create_qp() {
    Node& node = station_.node();
    const Swarm& swarm = context_.swarm;
    make_own_queues();
    transport::QpInit init;
    init.type = type_;
    if (type_ == QpType::XrcTarget) {
        init.xrc_domain = station_.xrc_domain();
    } else {
        init.pd = station_.pd();
        init.send_cq = &send_cq();
        if (type_ != QpType::XrcInitiator) init.receive_cq = &receive_cq();
    }
    if (plan_.shared_receives) init.srq = own_srq_ ? own_srq_.get() : &station_.srq();
    init.capabilities = {.send_wr_max = swarm.depth + 2,
                         .receive_wr_max = swarm.receives,
                         .send_sge_max = 4,
                         .receive_sge_max = 1,
                         .inline_max = 128};
    const auto shard = static_cast<std::uint32_t>(context_.random.below(node.shards()));
    const auto qp = node.engine(shard).create_qp(init);
    ASSERT(qp.has_value());
    qp_ = *qp;
}

void Endpoint::make_own_queues() {
    if (!context_.swarm.own_queues || type_ == QpType::XrcTarget) return;
    own_cq_ = std::make_unique<device::CompletionQueue>(4096, nullptr, nullptr);
    if (!has_own_srq()) return;
    own_srq_ = std::make_unique<transport::ReceiveQueue>(station_.pd(), context_.swarm.receives, 1);
    own_pool_->serve(own_srq_.get());
}

// As a program may: once the queue pair is gone, whatever of it is still on its way.
void Endpoint::destroy_own_queues() {
    if (own_srq_) {
        own_pool_->serve(static_cast<transport::ReceiveQueue*>(nullptr));
        context_.checks.completions.forget_shared(own_pool_->shared_key());
        station_.destroy(std::move(own_srq_));
    }
    if (own_cq_) station_.destroy(std::move(own_cq_));
}

std::string Endpoint::describe() {
    if (qp_ == nullptr) return "no queue pair";
    const QueueKey receives = queue(true);
    return sim::to_string(queue(false)) + " in state " +
           std::to_string(static_cast<int>(qp_->state())) + ", " + std::to_string(budget_) +
           " to post, " + std::to_string(operations_.size()) + " under way, " +
           std::to_string(context_.checks.messages.missing(receives)) + " messages missing, " +
           std::to_string(pool().posted()) + " receives posted";
}

void Endpoint::turn() {
    if (qp_ == nullptr) return;
    pool().top_up();
    const auto posts = [this] {
        return qp_->state() == transport::QpState::Rts || qp_->state() == transport::QpState::Sqd;
    };
    while (posts() && operations_.size() < context_.swarm.depth) {
        if (!post_one()) break;
    }
}

void Endpoint::on_send_completion(const Completion& completion, const Allowance& allowance) {
    const QueueKey key = queue(false);
    context_.checks.flush.completed(key, completion);
    context_.checks.statuses.completed(key, completion, allowance,
                                       station_.node().engine_of(qp_->qpn()).reasons());
    for (const std::uint64_t id : context_.checks.completions.completed(key, completion)) {
        const auto found = operations_.find(id);
        ASSERT(found != operations_.end());
        const Operation op = found->second;
        operations_.erase(found);
        finish(op, id != completion.wr_id || completion.status == WcStatus::Success);
    }
}

void Endpoint::finish(const Operation& op, bool success) {
    ShadowChecker& shadow = context_.checks.shadow;
    switch (op.op) {
        case SendOp::Write:
        case SendOp::WriteImmediate:
            if (success && reliable())
                shadow.close_exact(peer_->node(), peer_->targets_.place(*op.target),
                                   op.target_range, op.pattern);
            // What failed may still be on its way: the place stays open until both sides are gone.
            if (success) peer_->targets_.give(*op.target);
            break;
        case SendOp::Read:
            if (success) {
                shadow.close_exact(node(), locals_.place(*op.local), op.range, op.pattern);
            } else {
                shadow.close_failed(node(), locals_.place(*op.local));
            }
            if (op.target && success) peer_->targets_.give(*op.target);
            break;
        case SendOp::CompareSwap:
        case SendOp::FetchAdd:
            finish_atomic(op, success);
            break;
        case SendOp::BindWindow:
            window_ = success ? Window::Bound : Window::Free;
            break;
        default:
            break;
    }
    if (op.local) locals_.give(*op.local);
}

void Endpoint::finish_atomic(const Operation& op, bool success) {
    std::uint64_t original;
    std::memcpy(&original, station_.node().arena().bytes(op.range).data(), 8);
    context_.checks.shadow.close_unseen(node(), op.range);
    if (op.op == SendOp::FetchAdd) {
        if (success) {
            context_.checks.fetch_add.succeeded(op.word, original);
        } else {
            context_.checks.fetch_add.failed(op.word);
        }
    } else if (success) {
        context_.checks.compare_swap.succeeded(op.word, op.expected, original);
    }
}

void Endpoint::on_receive_completion(const Completion& completion, const Allowance& allowance) {
    const QueueKey key = queue(true);
    if (shares_receives()) {
        context_.checks.completions.completed_shared(pool().shared_key(), completion.wr_id);
    } else {
        context_.checks.completions.completed(key, completion);
    }
    context_.checks.flush.completed(key, completion);
    context_.checks.statuses.completed(key, completion, allowance,
                                       station_.node().engine_of(qp_->qpn()).reasons());
    const auto place = pool().take_back(completion.wr_id);
    if (!place) return;
    if (completion.status != WcStatus::Success) {
        context_.checks.shadow.close_unseen(node(), *place);
        return;
    }
    receive_payload(completion, *place);
    if (completion.has_invalidate) window_ = Window::Free;
}

void Endpoint::receive_payload(const Completion& completion, Range place) {
    MessageChecker& messages = context_.checks.messages;
    const bool datagram = type_ == QpType::Ud;
    const std::uint32_t grh = datagram ? kGrhBytes : 0;
    std::uint64_t length = completion.opcode == WcOpcode::Receive ? completion.byte_length : 0;
    if (length < grh || length > place.length) {
        context_.checks.report.fail(MessageChecker::kName,
                                    sim::to_string(queue(true)) + ": impossible length " +
                                        std::to_string(completion.byte_length));
        length = grh;
    }
    const ByteView payload = station_.node().arena().bytes({place.offset + grh, length - grh});
    if (reliable()) {
        messages.received_reliable(queue(true), completion, payload);
    } else {
        messages.received_unreliable(queue(true), completion, payload);
    }
    if (reliable()) {
        context_.checks.shadow.close_received(node(), place, length);
    } else {  // Broken messages may have left bytes behind the end, datagrams have a header.
        context_.checks.shadow.close_unseen(node(), place);
    }
}

bool Endpoint::deregister(Victim victim) {
    bool& registered = victim == Victim::Local ? local_registered_ : target_registered_;
    const LKey key = victim == Victim::Local ? local_keys_.lkey : target_keys_.lkey;
    if (!registered) return false;
    // A program may also free far memory and leave it registered.
    const auto far = station_.node().memory().far_memory(key.raw);
    if (far != nullptr && context_.random.chance(0.5)) {
        FarCopies::lose(*far);
        return true;
    }
    if (!station_.node().deregister(key).has_value()) return false;
    registered = false;
    return true;
}

void Endpoint::fail_if_busy() {
    if (qp_ == nullptr) return;
    context_.checks.completions.expect_none(queue(false));
    if (!shares_receives()) context_.checks.completions.expect_none(queue(true));
}

void Endpoint::forget() {
    for (const bool receive : {false, true}) {
        context_.checks.completions.forget(queue(receive));
        context_.checks.flush.forget(queue(receive));
        context_.checks.messages.forget(queue(receive));
    }
    own_pool_->serve(static_cast<transport::QueuePair*>(nullptr));
}

void Endpoint::destroy() {
    if (qp_ == nullptr) return;
    const Qpn qpn = qp_->qpn();
    forget();
    station_.node().end_copies(*qp_);
    station_.node().engine_of(qpn).destroy_qp(*qp_);
    send_cq().purge(qpn);
    receive_cq().purge(qpn);
    station_.xrc_cq().purge(qpn);
    qp_ = nullptr;
    destroy_own_queues();
}

void Endpoint::reset() {
    if (qp_ == nullptr) return;
    forget();
    station_.node().end_copies(*qp_);
    move_to(station_.node(), *qp_, transport::QpState::Reset);
    station_.xrc_cq().purge(qp_->qpn());  // The queue pair does not know of it.
}

void Endpoint::settle() {
    ShadowChecker& shadow = context_.checks.shadow;
    for (const auto& [id, op] : operations_) finish(op, false);
    operations_.clear();
    last_write_.reset();
    own_pool_->take_back_all();
    for (std::size_t i = 0; i < targets_.size(); ++i)
        shadow.close_failed(node(), targets_.place(i));
    targets_.give_all();
    locals_.give_all();
    context_.checks.compare_swap.settle(station_.word(word_), station_.word_value(word_));

    mem::Memory& memory = station_.node().memory();
    bool clean = true;
    if (window_ != Window::None) clean = memory.free_window(window_key_).has_value();
    window_ = Window::None;
    if (local_registered_) clean &= station_.node().deregister(local_keys_.lkey).has_value();
    if (target_registered_) clean &= station_.node().deregister(target_keys_.lkey).has_value();
    clean &= station_.node().deregister(own_pool_->key()).has_value();
    local_registered_ = target_registered_ = false;
    if (!clean)
        context_.checks.report.fail(Checks::kTeardown, "node " + std::to_string(node()) +
                                                           ": memory could not be given back");
}

}  // namespace feroce::sim
