#include "feroce/gas/lanes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "gas/local_memory.hpp"
#include "gas/outcast.hpp"
#include "gas/slot.hpp"

namespace feroce::gas {

using detail::Fault;
using detail::Slot;
using detail::Step;

namespace {

bool is_atomic(const Step& step) {
    return step.kind == Step::Kind::CompareExchange || step.kind == Step::Kind::FetchAdd;
}

std::string name_of(NodeId node) {
    return "node " + std::to_string(static_cast<unsigned>(node));
}

// RDMA orders everything behind a READ or an atomic but WRITEs, and atomics behind READs.
bool needs_fence(const Step* steps, std::size_t index) {
    for (std::size_t i = 0; i < index; ++i) {
        const bool reads = steps[i].kind == Step::Kind::Read;
        if (steps[index].kind == Step::Kind::Write && (reads || is_atomic(steps[i]))) return true;
        if (is_atomic(steps[index]) && reads) return true;
    }
    return false;
}

void describe(const Step& step, std::uint32_t rkey, ibv_send_wr& wr) {
    switch (step.kind) {
        case Step::Kind::Read:
            wr.opcode = IBV_WR_RDMA_READ;
            wr.wr.rdma = {step.remote, rkey};
            break;
        case Step::Kind::Write:
            wr.opcode = IBV_WR_RDMA_WRITE;
            wr.wr.rdma = {step.remote, rkey};
            break;
        case Step::Kind::CompareExchange:
            wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
            wr.wr.atomic = {step.remote, step.expected, step.desired, rkey};
            break;
        case Step::Kind::FetchAdd:
            wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
            wr.wr.atomic = {step.remote, step.expected, 0, rkey};
            break;
    }
}

// What we ask for is within what a node shares, so it refuses this node: it has fenced it.
bool is_refusal(ibv_wc_status status) {
    return status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR;
}

std::size_t copied_bytes(const Step& step) {
    return (std::size_t{step.bytes} + 7) / 8 * 8;
}

void count(Traffic& traffic, const Step& step) {
    traffic.reads += step.kind == Step::Kind::Read ? 1 : 0;
    traffic.writes += step.kind == Step::Kind::Write ? 1 : 0;
    traffic.atomics += is_atomic(step) ? 1 : 0;
}

}  // namespace

Lanes::Flush::Flush(rdma::Loop& loop, Lanes& of)
    : Deferred(loop, [](Deferred& self) { static_cast<Flush&>(self).lanes.flush(); }), lanes(of) {}

Lanes::Lanes(rdma::Loop& loop, const Setup& setup)
    : loop_(loop),
      setup_(setup),
      slots_(std::make_unique<Slot[]>(kSlots)),
      flush_(loop, *this),
      shelter_(loop) {
    const auto places = reinterpret_cast<std::uint64_t>(setup.buffers) + kSlots * kChainBytes;
    for (std::size_t i = 0; i < kPlaces; ++i) free_places_.push_back(places + i * kPlaceBytes);
    reserve_ = places + kPlaces * kPlaceBytes;
    reserve_end_ = places + setup.nodes * kPlaces * kPlaceBytes;
    for (std::size_t i = 0; i < kSlots; ++i) {
        Slot& slot = slots_[i];
        slot.lanes = this;
        slot.buffer = setup.buffers + i * kChainBytes;
        slot.next = std::exchange(free_, &slot);
        for (std::size_t step = 0; step < kChainSteps; ++step) {
            Slot::StepOperation& operation = slot.operations[step];
            operation.slot = &slot;
            operation.index = step;
            operation.complete = [](rdma::Operation& self, const ibv_wc& completion) {
                const auto& done = static_cast<Slot::StepOperation&>(self);
                done.slot->lanes->on_completion(*done.slot, done.index, completion);
            };
        }
    }
}

Lanes::~Lanes() = default;

std::uint64_t Lanes::take_place_bits() {
    if (free_places_.empty()) return 0;
    const std::uint64_t address = free_places_.back();
    free_places_.pop_back();
    return ptr<void>(setup_.self, address).bits();
}

void Lanes::replace_place() {
    if (reserve_ == reserve_end_) return;
    free_places_.push_back(reserve_);
    reserve_ += kPlaceBytes;
}

void Lanes::set_lane(NodeId node, Lane lane) {
    const auto index = static_cast<std::size_t>(node);
    if (lanes_.size() <= index) {
        lanes_.resize(index + 1);
        batches_.resize(index + 1);
        asked_.reserve(index + 1);  // Asking allocates nothing.
    }
    lanes_[index] = std::move(lane);
}

void Lanes::close() {
    for (Lane& lane : lanes_) {
        if (!lane.lost) lane.lost = Error(ESHUTDOWN, "this node has left the cluster");
        lane.connection.reset();
    }
}

bool Lanes::contains(ptr<void> p, std::size_t bytes) const {
    const auto index = static_cast<std::size_t>(setup_.self);
    if (p.node() != setup_.self || index >= lanes_.size()) return false;
    const Lane& own = lanes_[index];
    return p.address() >= own.base && p.address() - own.base <= own.bytes &&
           bytes <= own.bytes - (p.address() - own.base);
}

Fault Lanes::check(const Lane& lane, const Step& step) const {
    const std::uint64_t offset = step.remote - lane.base;
    if (step.remote < lane.base || offset > lane.bytes || step.bytes > lane.bytes - offset)
        return Fault::Bounds;
    if (is_atomic(step) && !detail::aligned(step.remote)) return Fault::Alignment;
    return Fault::None;
}

Fault Lanes::check(const Chain& chain) const {
    if (chain.count_ == 0) return Fault::Steps;
    const auto index = static_cast<std::size_t>(chain.node_);
    if (index >= lanes_.size() || lanes_[index].bytes == 0) return Fault::NoLane;
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < chain.count_; ++i) {
        const Fault fault = check(lanes_[index], chain.steps_[i]);
        if (fault != Fault::None) return fault;
        largest = std::max(largest, chain.steps_[i].bytes);
    }
    if (largest > kStepBytes) return Fault::Size;
    if (runs_here(chain)) return Fault::None;
    if (!is_local(chain.node_) && is_outcast()) return Fault::Outcast;
    if (is_lost(chain.node_)) return Fault::Lost;
    return lanes_[index].connection ? Fault::None : Fault::NoLane;
}

bool Lanes::runs_here(const Chain& chain) const {
    if (chain.node_ != setup_.self) return false;
    if (setup_.global_atomics) return true;
    for (std::size_t i = 0; i < chain.count_; ++i)
        if (chain.steps_[i].for_nic) return false;
    return true;
}

void Lanes::run_here(const Step& step) {
    ++traffic_.local;
    std::uint64_t result = 0;
    switch (step.kind) {
        case Step::Kind::Read:
            detail::copy_from_shared(step.local, step.remote, step.bytes);
            return;
        case Step::Kind::Write:
            if (step.bytes == 8 && detail::aligned(step.remote)) {  // A word: as strong as words.
                std::memcpy(&result, step.local, 8);
                detail::cell_at(step.remote).store(result);
            } else {
                detail::copy_to_shared(step.remote, step.local, step.bytes);
            }
            return;
        case Step::Kind::CompareExchange:
            result = detail::cell_at(step.remote).compare_exchange(step.expected, step.desired);
            break;
        case Step::Kind::FetchAdd:
            result = detail::cell_at(step.remote).fetch_add(step.expected);
            break;
    }
    std::memcpy(step.local, &result, 8);
}

void Lanes::launch(Chain& chain) {
    waiting_.push_back(chain);
    flush_.schedule();
}

void Lanes::flush() {
    if (setup_.before_flush) setup_.before_flush();
    while (free_ != nullptr) {
        Chain* next = waiting_.pop_front();
        if (next == nullptr) break;
        gather(*next);
    }
    for (const NodeId node : asked_) {
        const auto index = static_cast<std::size_t>(node);
        post(node, std::exchange(batches_[index], {}));
    }
    asked_.clear();
}

void Lanes::gather(Chain& chain) {
    const auto index = static_cast<std::size_t>(chain.node_);
    const Lane& lane = lanes_[index];
    if (lane.lost) {
        chain.fault_ = Fault::Lost;
        return chain.finish();
    }
    Slot& slot = *free_;
    if (const Result<> room = make_room(chain, slot); !room) {
        chain.fault_ = Fault::NoBuffer;
        return chain.finish();
    }
    free_ = std::exchange(slot.next, nullptr);
    prepare(chain, lane, slot);
    slot.chain = &chain;
    slot.node = chain.node_;
    slot.count = chain.count_;
    chain.slot_ = &slot;
    Batch& batch = batches_[index];
    if (batch.first == nullptr) asked_.push_back(chain.node_);
    (batch.first == nullptr ? batch.first : batch.last->next) = &slot;
    batch.last = &slot;
}

// Most chains fit into the slot's own buffer.
Result<> Lanes::make_room(const Chain& chain, Slot& slot) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < chain.count_; ++i) bytes += copied_bytes(chain.steps_[i]);
    if (bytes <= kChainBytes || (slot.larger && slot.larger->size() >= bytes)) return {};
    slot.larger.reset();
    auto made =
        rdma::Buffer::create(setup_.domain, loop_.runtime().memory(), bytes, rdma::Access::Local);
    if (!made) return made.error();
    slot.larger = *std::move(made);
    return {};
}

void Lanes::prepare(const Chain& chain, const Lane& lane, Slot& slot) {
    std::size_t used = 0;
    std::byte* const buffer = slot.larger ? slot.larger->data() : slot.buffer;
    const std::uint32_t lkey = slot.larger ? slot.larger->local().raw().lkey : setup_.lkey;
    for (std::size_t i = 0; i < chain.count_; ++i) {
        const Step& step = chain.steps_[i];
        ibv_send_wr& wr = slot.requests[i];
        wr = {};
        describe(step, lane.rkey, wr);
        wr.wr_id = rdma::to_wr_id(&slot.operations[i]);
        wr.sg_list = &slot.pieces[i];
        wr.num_sge = step.bytes > 0 ? 1 : 0;
        wr.send_flags = i + 1 == chain.count_ ? IBV_SEND_SIGNALED : 0;
        if (needs_fence(chain.steps_.data(), i)) wr.send_flags |= IBV_SEND_FENCE;
        slot.place[i] = nullptr;
        auto* memory = static_cast<std::byte*>(step.local);
        if (step.kind == Step::Kind::Write && step.bytes <= setup_.inline_bytes) {
            wr.send_flags |= IBV_SEND_INLINE;
        } else {
            slot.place[i] = buffer + used;
            used += copied_bytes(step);
            if (step.kind == Step::Kind::Write) std::memcpy(slot.place[i], memory, step.bytes);
            memory = slot.place[i];
        }
        slot.pieces[i] = {reinterpret_cast<std::uint64_t>(memory), step.bytes, lkey};
        count(traffic_, step);
    }
    ++traffic_.round_trips;
}

// All first steps, then all second ones: steps of one kind and size stand side by side, which a
// soft device sends at once, and the first fence waits for all chains together.
ibv_send_wr* Lanes::linked(const Batch& batch) {
    ibv_send_wr* first = nullptr;
    ibv_send_wr** link = &first;
    for (std::size_t step = 0; step < kChainSteps; ++step)
        for (Slot* slot = batch.first; slot != nullptr; slot = slot->next)
            if (step < slot->count) {
                *link = &slot->requests[step];
                link = &slot->requests[step].next;
            }
    return first;
}

void Lanes::post(NodeId node, const Batch& batch) {
    const Lane& lane = lanes_[static_cast<std::size_t>(node)];
    ++traffic_.doorbells;
    ibv_send_wr* bad = nullptr;
    const int code = ibv_post_send(lane.connection->queue_pair(), linked(batch), &bad);
    if (code == 0) return;
    const auto why = lane.connection->cause();
    lose(node, why ? *why : Error(code, std::strerror(code)), false);
    refuse(bad);
}

void Lanes::lose(NodeId node, const Error& why, bool refused) {
    lanes_[static_cast<std::size_t>(node)].lost = why;
    if (setup_.on_lost) setup_.on_lost(refused ? setup_.self : node);
}

bool Lanes::is_outcast() const {
    return setup_.losses != nullptr && setup_.losses[static_cast<std::size_t>(self())].load() != 0;
}

// Ends the chains that have a work request, from this one on, which the device did not take.
void Lanes::refuse(const ibv_send_wr* first) {
    for (const ibv_send_wr* wr = first; wr != nullptr; wr = wr->next) {
        auto& operation = *reinterpret_cast<rdma::Operation*>(wr->wr_id);
        Slot& slot = *static_cast<Slot::StepOperation&>(operation).slot;
        Chain* chain = std::exchange(slot.chain, nullptr);
        if (chain == nullptr) continue;  // Another step of it was seen before.
        chain->slot_ = nullptr;
        chain->fault_ = Fault::Lost;
        chain->finish();
        release(slot);
    }
}

void Lanes::abandon(Chain& chain) {
    chain.unlink();
    if (chain.slot_ != nullptr) std::exchange(chain.slot_, nullptr)->chain = nullptr;
}

void Lanes::on_completion(Slot& slot, std::size_t step, const ibv_wc& completion) {
    const bool good = completion.status == IBV_WC_SUCCESS;
    Lane& lane = lanes_[static_cast<std::size_t>(slot.node)];
    // What fails later is a consequence.
    if (!good && !lane.lost && lane.connection)
        lose(slot.node, lane.connection->judge(completion).error(), is_refusal(completion.status));
    if (step + 1 < slot.count) return;  // Only failures come before the last.
    if (Chain* chain = std::exchange(slot.chain, nullptr)) {
        chain->slot_ = nullptr;
        if (!good) chain->fault_ = Fault::Lost;
        for (std::size_t i = 0; good && i < chain->count_; ++i) {
            const Step& done = chain->steps_[i];
            if (slot.place[i] != nullptr && done.kind != Step::Kind::Write)
                std::memcpy(done.local, slot.place[i], done.bytes);
        }
        chain->finish();
    }
    release(slot);
}

void Lanes::release(Slot& slot) {
    if (slot.larger && slot.larger->size() > kKeptBytes) slot.larger.reset();
    slot.next = std::exchange(free_, &slot);
    if (!waiting_.empty()) flush_.schedule();
}

Error Lanes::error_of(const Chain& chain) const {
    const std::string node = name_of(chain.node_);
    switch (chain.fault_) {
        case Fault::Steps:
            return {EINVAL, "a chain has 1 to " + std::to_string(kChainSteps) + " steps"};
        case Fault::Nodes:
            return {EINVAL, "all steps of a chain are for one node; this one is for " + node};
        case Fault::Bounds:
            return {EFAULT, "the pointer is outside of what " + node +
                                " shares: it is null, "
                                "stale or was computed wrongly"};
        case Fault::Alignment:
            return {EINVAL, "an atomic needs a word at a multiple of 8 bytes"};
        case Fault::Size:
            return {EMSGSIZE,
                    "one step of a chain carries at most " + std::to_string(kStepBytes) + " bytes"};
        case Fault::NoBuffer:
            return {ENOMEM,
                    "there is no memory for the copy of what goes to or comes from " + node};
        case Fault::NoLane:
            return {EHOSTUNREACH, node + " is no memory node of this cluster"};
        case Fault::TimedOut:
            return {ETIMEDOUT, node + " did not answer in time"};
        case Fault::Canceled:
            return {ECANCELED, "the program asked to stop the operation on " + node};
        case Fault::Outcast:
            return outcast();
        case Fault::Lost:
        case Fault::None:
            break;
    }
    return loss(chain.node_);
}

Error Lanes::loss(NodeId node) const {
    if (!is_local(node) && is_outcast()) return outcast();
    const auto& why = lanes_[static_cast<std::size_t>(node)].lost;
    Error error = why ? *why : found_by_another();
    error.why = name_of(node) + " is lost: " + error.why;
    return error;
}

std::optional<Error> Lanes::loss_of(NodeId node) const {
    const bool known = static_cast<std::size_t>(node) < lanes_.size() && !is_local(node);
    if (!known || !is_lost(node)) return std::nullopt;
    return loss(node);
}

}  // namespace feroce::gas
