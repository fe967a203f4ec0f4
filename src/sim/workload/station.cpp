#include "sim/workload/station.hpp"

#include <cstring>

#include "base/assert.hpp"

namespace feroce::sim {

mem::RegionKeys register_range(Node& node, PdId pd, Range range, mem::AccessSet access, bool far) {
    mem::RegionSpec spec{.pd = pd,
                         .address = node.arena().data() + range.offset,
                         .length = range.length,
                         .iova = node.arena().iova(range.offset),
                         .access = access};
    if (far) spec.address = FarCopies::address(range.offset);
    if (far) spec.far = node.far_copies().make();
    const auto keys = node.memory().register_region(spec);
    ASSERT(keys.has_value());
    return *keys;
}

ReceivePool::ReceivePool(Context& context, Station& station, Slots slots, std::uint32_t number)
    : context_(context), station_(station), slots_(std::move(slots)), number_(number) {}

QueueKey ReceivePool::shared_key() const {
    return {station_.node().id(), number_, true};
}

void ReceivePool::serve(transport::QueuePair* qp) {
    qp_ = qp;
}

void ReceivePool::serve(transport::ReceiveQueue* srq) {
    srq_ = srq;
}

void ReceivePool::top_up() {
    if (posted_.size() == slots_.size()) return;
    if (!context_.late_receives) return post_all();
    if (scheduled_) return;
    scheduled_ = true;
    const auto delay = std::chrono::microseconds(context_.random.below(2000));
    context_.world.scheduler().after(delay, [this] {
        scheduled_ = false;
        post_all();
        station_.node().wake();
    });
}

void ReceivePool::post_all() {
    if (qp_ == nullptr && srq_ == nullptr) return;
    if (qp_ != nullptr && qp_->state() == transport::QpState::Err) return;
    Node& node = station_.node();
    CompletionChecker& completions = context_.checks.completions;
    while (const auto slot = slots_.take(context_.random)) {
        const Range place = slots_.place(*slot);
        const mem::Sge sge{node.arena().iova(place.offset),
                           static_cast<std::uint32_t>(place.length), key_};
        const transport::ReceiveWr wr{context_.id(), {&sge, 1}};
        context_.checks.shadow.open_to_all(node.id(), place);
        posted_[wr.wr_id] = *slot;
        if (srq_ != nullptr) {
            ASSERT(srq_->post(wr).has_value());
            completions.posted_shared(shared_key(), wr.wr_id);
        } else {
            const Qpn qpn = qp_->qpn();
            ASSERT(node.engine_of(qpn).post_receive(node.now(), *qp_, wr).has_value());
            completions.posted({node.id(), qpn.raw, true}, wr.wr_id, true);
        }
    }
}

std::optional<Range> ReceivePool::take_back(std::uint64_t wr_id) {
    const auto found = posted_.find(wr_id);
    if (found == posted_.end()) return std::nullopt;
    const Range place = slots_.place(found->second);
    slots_.give(found->second);
    posted_.erase(found);
    return place;
}

void ReceivePool::take_back_all() {
    for (const auto& [wr_id, slot] : posted_)
        context_.checks.shadow.close_unseen(station_.node().id(), slots_.place(slot));
    posted_.clear();
    slots_.give_all();
}

Station::Station(Context& context, Node& node) : context_(context), node_(node) {
    send_cq_ = std::make_unique<device::CompletionQueue>(65536, nullptr, nullptr);
    receive_cq_ = std::make_unique<device::CompletionQueue>(65536, nullptr, nullptr);
}

void Station::lay_out() {
    const Swarm& swarm = context_.swarm;
    words_ = node_.arena().allocate(kWords * 8);
    library_ = node_.arena().allocate(swarm.message_max + 64);
    const std::uint64_t slot_bytes = swarm.message_max + 16;
    const std::uint32_t receives = swarm.receives * 2;
    shared_pool_ = std::make_unique<ReceivePool>(
        context_, *this, Slots(node_.arena().allocate(slot_bytes * receives), slot_bytes),
        ReceivePool::kShared);
    xrc_pool_ = std::make_unique<ReceivePool>(
        context_, *this, Slots(node_.arena().allocate(slot_bytes * receives), slot_bytes),
        ReceivePool::kXrc);
}

void Station::fill() {
    context_.checks.shadow.exempt(node_.id(), words_);
    library_id_ = context_.id() << 20;
    context_.checks.shadow.write(node_.id(), library_, library_pattern(0));
}

void Station::register_all() {
    using mem::Access;
    const auto pd = node_.memory().alloc_pd();
    ASSERT(pd.has_value());
    pd_ = *pd;
    words_keys_ = register_range(node_, pd_, words_, Access::LocalWrite | Access::RemoteAtomic);
    library_keys_ = register_range(node_, pd_, library_, Access::RemoteRead, context_.draws_far());
    const Range shared = shared_pool_->region();
    shared_pool_->set_key(
        register_range(node_, pd_, shared, Access::LocalWrite, context_.draws_far()).lkey);
    srq_ = std::make_unique<transport::ReceiveQueue>(pd_, context_.swarm.receives * 2, 1);
    shared_pool_->serve(srq_.get());
    const Range xrc = xrc_pool_->region();
    xrc_pool_->set_key(
        register_range(node_, pd_, xrc, Access::LocalWrite, context_.draws_far()).lkey);
    xrc_domain_ = node_.xrc().create();
    make_xrc_srq();
}

void Station::make_xrc_srq() {
    xrc_cq_ = std::make_unique<device::CompletionQueue>(65536, nullptr, nullptr);
    xrc_queue_ = std::make_unique<transport::ReceiveQueue>(pd_, context_.swarm.receives * 2, 1);
    const auto number = node_.xrc().register_srq(*xrc_queue_, xrc_domain_, *xrc_cq_);
    ASSERT(number.has_value());
    xrc_number_ = *number;
    xrc_pool_->serve(xrc_queue_.get());
}

// As ibv_destroy_srq and ibv_destroy_cq do it: nobody runs now, and then they are gone.
void Station::destroy_xrc_srq() {
    node_.xrc().unregister_srq(xrc_number_);
    node_.end_deliveries();
    xrc_pool_->serve(static_cast<transport::ReceiveQueue*>(nullptr));
    xrc_pool_->take_back_all();
    context_.checks.completions.forget_shared(xrc_pool_->shared_key());
    destroy(std::move(xrc_queue_));
    destroy(std::move(xrc_cq_));
}

void Station::destroy(std::unique_ptr<device::CompletionQueue> cq) {
    for (std::uint32_t shard = 0; shard < node_.shards(); ++shard) node_.engine(shard).forget(*cq);
    std::vector<transport::Completion> last(cq->size());
    cq->poll(last);
    if (context_.random.chance(0.5)) destroyed_cqs_.push_back(std::move(cq));
}

void Station::destroy(std::unique_ptr<transport::ReceiveQueue> srq) {
    const std::uint32_t available = srq->available();
    if (context_.random.chance(0.5)) destroyed_srqs_.push_back({std::move(srq), available});
}

void Station::check_destroyed() {
    Report& report = context_.checks.report;
    const std::string where = "node " + std::to_string(node_.id()) + ": ";
    for (const auto& cq : destroyed_cqs_)
        if (!cq->empty())
            report.fail(Checks::kDestroyed, where + "a completion for a destroyed queue");
    for (const DestroyedSrq& srq : destroyed_srqs_)
        if (srq.queue->available() != srq.available)
            report.fail(Checks::kDestroyed, where + "a receive of a destroyed queue was taken");
}

void Station::replace_xrc_srq() {
    destroy_xrc_srq();
    make_xrc_srq();
}

std::uint64_t Station::word_value(std::uint32_t index) {
    std::uint64_t value;
    std::memcpy(&value, node_.arena().bytes({words_.offset + index * 8, 8}).data(), 8);
    return value;
}

void Station::close() {
    Report& report = context_.checks.report;
    const std::string where = "node " + std::to_string(node_.id()) + ": ";
    mem::Memory& memory = node_.memory();
    const bool gone = node_.deregister(words_keys_.lkey).has_value() &&
                      node_.deregister(library_keys_.lkey).has_value() &&
                      node_.deregister(shared_pool_->key()).has_value() &&
                      node_.deregister(xrc_pool_->key()).has_value();
    if (!gone) report.fail(Checks::kTeardown, where + "a region could not be deregistered");
    if (!memory.dealloc_pd(pd_).has_value())
        report.fail(Checks::kTeardown, where + "something still uses the protection domain");
    if (!send_cq_->empty() || !receive_cq_->empty() || !xrc_cq_->empty())
        report.fail(Checks::kTeardown, where + "a completion nobody expects is in the queue");
    destroy_xrc_srq();
    check_destroyed();
    if (!node_.xrc().destroy(xrc_domain_).has_value())
        report.fail(Checks::kTeardown, where + "something still uses the XRC domain");
    for (std::uint32_t shard = 0; shard < node_.shards(); ++shard) {
        device::Engine& engine = node_.engine(shard);
        if (engine.qps().size() != 0)
            report.fail(Checks::kTeardown, where + "queue pairs are left in the table");
        if (engine.has_work() || engine.next_wakeup() != kNever)
            report.fail(Checks::kTeardown, where + "an empty engine still has timers or work");
    }
}

}  // namespace feroce::sim
