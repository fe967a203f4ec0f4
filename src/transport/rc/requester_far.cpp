// Far memory at the requester. What is sent is gathered ahead of the position; what READs and
// atomics bring is put together in staging and copied, and a request is completed when its bytes
// are in memory. See ADR 27.
#include <algorithm>

#include "base/shortage.hpp"
#include "transport/local_work.hpp"
#include "transport/rc/requester.hpp"

namespace feroce::transport::rc {

FarOutbound& Requester::far() {
    if (far_work() == nullptr) qp_.far_work().outbound = std::make_unique<FarOutbound>();
    return *far_work();
}

void Requester::stop_far() {
    qp_.far_work().outbound.reset();
    far_gathers_ = far_lands_ = false;
}

// Fills the payload from staging. Far: it is still to come.
mem::Fault Requester::gather_far(std::uint64_t offset, ByteSpan into) {
    if (qp_.services().copies == nullptr) return mem::Fault::Far;
    if (!probe_.sending && !with_memory([&] { far().sources.plan(qp_, position_.index, offset); }))
        return mem::Fault::Unmapped;
    if (far_work() == nullptr) return mem::Fault::Far;
    return far_work()->sources.fill(position_.index, offset, into);
}

// The packet at the position has to wait for its bytes. A probe would wait too long: everything is
// sent again instead, as soon as it is there.
void Requester::wait_for_source() {
    if (probe_.sending) {
        probe_.sending = false;
        return rewind(Counter::ResentByProbe);
    }
    far_gathers_ = true;
}

// Requests may have been posted since the position began to wait. Where there is no memory they are
// gathered when their turn comes.
void Requester::gather_more() {
    const SendQueue& queue = qp_.send_queue();
    if (far_work() == nullptr || position_.index == queue.tail()) return;  // Acknowledged late.
    if (is_local(queue.at(position_.index).op)) return;
    const std::uint64_t offset = std::uint64_t{position_.packet} * qp_.attributes().path_mtu;
    (void)with_memory([&] { far_work()->sources.plan(qp_, position_.index, offset); });
}

// A bind or an invalidation is over when nothing is written through the old key any more. It is
// executed first, so that a peer that goes on writing does not hold it up: from then on no copy
// starts by that key.
bool Requester::execute_once(Instant now, SendWqe& wqe) {
    far_gathers_ = qp_.delivers() && !with_memory([this] { far(); });
    if (far_gathers_) return false;
    if (far_work() == nullptr || !far_work()->local_until) {
        const SendFailure failure = execute_local(qp_, position_.index);
        if (failure.rule != Rule::None) {
            fail_head(now, failure.rule, failure.status, 0, failure.fault);
            return false;
        }
        if (qp_.delivers()) far_work()->local_until = qp_.services().copies->next();
    }
    if (qp_.delivers() && qp_.services().copies->delivers_before(qp_, *far_work()->local_until)) {
        far_gathers_ = true;
        return false;
    }
    if (far_work() != nullptr) far_work()->local_until.reset();
    wqe.executed = true;
    return true;
}

// Bytes of an answer, some of them for far memory.
mem::Fault Requester::land(std::uint64_t index, std::uint64_t offset, ByteView bytes) {
    if (qp_.services().copies == nullptr) return mem::Fault::Far;
    mem::Fault fault = mem::Fault::None;
    if (!with_memory([&] { fault = add_to_landings(index, offset, bytes); }))
        fault = mem::Fault::Unmapped;
    return fault;
}

mem::Fault Requester::add_to_landings(std::uint64_t index, std::uint64_t offset, ByteView bytes) {
    while (!bytes.empty()) {
        FarOutbound::Landing* landing = nullptr;
        mem::Fault fault = open_landing(index, offset, landing);
        if (fault != mem::Fault::None) return fault;
        const std::size_t size =
            std::min<std::size_t>(bytes.size(), landing->capacity - landing->filled);
        mem::fill_staging(landing->group->bytes().subspan(landing->filled, size),
                          bytes.first(size));
        landing->filled += static_cast<std::uint32_t>(size);
        offset += size;
        bytes = bytes.subspan(size);
        if (landing->filled == landing->capacity) fault = start_landing(*landing);
        if (fault != mem::Fault::None) return fault;
    }
    return mem::Fault::None;
}

mem::Fault Requester::open_landing(std::uint64_t index, std::uint64_t offset,
                                   FarOutbound::Landing*& out) {
    FarOutbound& far = this->far();
    if (!far.landings.empty()) {
        FarOutbound::Landing& last = far.landings.back();
        out = &last;
        if (!last.started && last.index == index && last.offset + last.filled == offset)
            return mem::Fault::None;
        // A mixed list had host memory in between.
        if (!last.started)
            if (const mem::Fault fault = start_landing(last); fault != mem::Fault::None)
                return fault;
    }
    FarOutbound::Landing landing;
    landing.index = index;
    landing.offset = offset;
    const auto sges = qp_.send_queue().sges(index);
    landing.list = {qp_.init().pd, mem::Access::LocalWrite, false, {sges.begin(), sges.end()}};
    const std::uint64_t length = qp_.send_queue().at(index).length;
    landing.capacity = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(mem::FarMemory::kPieceBytes, length - offset));
    const mem::Fault fault = make_group(qp_, landing.list, offset, landing.capacity, landing.group);
    if (fault != mem::Fault::None) return fault;
    far.landing_bytes += landing.capacity;
    far_lands_ = true;
    far.landings.push_back(std::move(landing));
    out = &far.landings.back();
    return mem::Fault::None;
}

mem::Fault Requester::start_landing(FarOutbound::Landing& landing) {
    landing.started = true;
    return start_deliver(qp_, landing.list, landing.offset, landing.filled, landing.group);
}

// All of an answer has come.
mem::Fault Requester::close_landing(std::uint64_t index) {
    if (!lands_for(index) || far_work()->landings.back().started) return mem::Fault::None;
    mem::Fault fault = mem::Fault::None;
    if (!with_memory([&] { fault = start_landing(far_work()->landings.back()); }))
        fault = mem::Fault::Unmapped;
    return fault;
}

// The request fails: what of it has come is not wanted any more.
void Requester::drop_landings(std::uint64_t index) {
    if (!far_lands_) return;
    while (!far_work()->landings.empty() && far_work()->landings.back().index == index) {
        far_work()->landing_bytes -= far_work()->landings.back().capacity;
        far_work()->landings.pop_back();
    }
    far_lands_ = !far_work()->landings.empty();
}

bool Requester::lands_for(std::uint64_t index) const {
    if (!far_lands_) return false;
    return std::any_of(far_work()->landings.begin(), far_work()->landings.end(),
                       [index](const auto& landing) { return landing.index == index; });
}

// One that lands is not over: as long it counts as outstanding.
bool Requester::may_land_more() const {
    if (far_work()->landing_bytes > FarOutbound::kLandingMax) return false;
    if (position_.packet > 0) return true;
    const SendQueue& queue = qp_.send_queue();
    std::uint32_t open = 0;
    for (std::uint64_t i = queue.head(); i != position_.index; ++i)
        if (needs_response(queue.at(i).op)) ++open;
    return open < qp_.attributes().read_atomic_max;
}

bool Requester::has_landed() const {
    return far_lands_ && far_work()->landings.front().landed();
}

// Answers that are in memory complete their requests.
void Requester::settle_far(Instant now) {
    FarOutbound& far = this->far();
    while (has_landed()) {
        const FarOutbound::Landing& landing = far.landings.front();
        mem::Fault fault = mem::Fault::None;
        if (!with_memory([&] {
                fault = finish_deliver(qp_, landing.list, landing.offset, landing.filled,
                                       *landing.group);
            }))
            fault = mem::Fault::Unmapped;
        if (fault != mem::Fault::None) return fail_landing(now, fault);
        far.landing_bytes -= landing.capacity;
        far.landings.pop_front();
        far_lands_ = !far.landings.empty();
    }
    const std::optional<Reason> failure = far_lands_ ? std::nullopt : far.failure;
    retire_finished(now);
    if (failure && qp_.state() != QpState::Err) fail_head(now, *failure);
}

// Requests before it are answered and have landed.
void Requester::fail_landing(Instant now, mem::Fault fault) {
    retire_finished(now);
    if (qp_.state() == QpState::Err) return;
    far().landings.clear();
    far_lands_ = false;
    fail_head(now, fault == mem::Fault::Unmapped ? Rule::LocalMemoryGone : Rule::LocalKey,
              WcStatus::LocalProtectionError, 0, fault);
}

// A request failed, but answers of earlier ones are not in memory yet: those complete first.
bool Requester::postpone(const Reason& reason) {
    const SendQueue& queue = qp_.send_queue();
    while (far_lands_ && flight_.una < queue.at(far_work()->landings.back().index).end())
        drop_landings(far_work()->landings.back().index);
    if (!far_lands_) return false;
    if (!far_work()->failure) far_work()->failure = reason;
    halt();
    return true;
}

}  // namespace feroce::transport::rc
