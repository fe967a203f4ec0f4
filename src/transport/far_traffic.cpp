#include "transport/far_traffic.hpp"

#include <memory>

#include "base/shortage.hpp"
#include "transport/local_work.hpp"
#include "transport/packet_builder.hpp"

namespace feroce::transport {

FarTraffic::Sources& FarTraffic::make_sources() {
    if (sources() == nullptr) qp_.far_work().outbound = std::make_unique<Sources>();
    return *sources();
}

mem::Fault FarTraffic::gather(std::uint64_t offset, ByteSpan into) {
    const std::uint64_t index = qp_.send_queue().head();
    mem::Fault fault = gather_payload(qp_, index, offset, into);
    if (fault != mem::Fault::Far || qp_.services().copies == nullptr) [[likely]]
        return fault;
    if (!with_memory([&] { make_sources().ahead.plan(qp_, index, offset); }))
        return mem::Fault::Unmapped;
    fault = sources()->ahead.fill(index, offset, into);
    waits_ = fault == mem::Fault::Far;
    return fault;
}

SendFailure FarTraffic::execute() {
    const auto was_begun = [this] { return sources() != nullptr && sources()->local_until; };
    if (qp_.delivers() && !with_memory([this] { make_sources(); })) {
        waits_ = true;
        return {};
    }
    if (!was_begun()) {
        const SendFailure failure = execute_local(qp_, qp_.send_queue().head());
        if (failure.rule != Rule::None) return failure;
        if (qp_.delivers()) sources()->local_until = qp_.services().copies->next();
    }
    waits_ = qp_.delivers() && was_begun() &&
             qp_.services().copies->delivers_before(qp_, *sources()->local_until);
    if (!waits_ && sources() != nullptr) sources()->local_until.reset();
    return {};
}

bool FarTraffic::add(const Landings::Target& target, std::uint64_t offset, ByteView bytes) {
    if (landings() == nullptr &&
        !with_memory([this] { qp_.far_work().inbound = std::make_unique<Landings>(qp_); }))
        return false;
    const bool added = landings()->has_room(bytes.size()) && landings()->add(target, offset, bytes);
    lands_ = !landings()->empty();
    return added;
}

bool FarTraffic::end(const Landings::Target& target, const std::optional<Completion>& receive) {
    return landings()->end(target, receive);
}

void FarTraffic::break_off() {
    if (landings() == nullptr) return;
    landings()->break_off();
    lands_ = !landings()->empty();
}

void FarTraffic::settle(Instant now) {
    if (!lands_) return;
    landings()->settle(now);
    lands_ = landings() != nullptr && !landings()->empty();  // It is gone if it failed.
}

void FarTraffic::stop(Instant now) {
    if (lands_ && qp_.state() == QpState::Err) landings()->flush(now);
    qp_.far_work().inbound.reset();
    qp_.far_work().outbound.reset();
    waits_ = lands_ = false;
}

const char* FarTraffic::check_invariants() const {
    if (lands_ != (landings() != nullptr && !landings()->empty()))
        return "messages are on their way to memory, and nobody waits for them";
    return lands_ ? landings()->check_invariants() : nullptr;
}

}  // namespace feroce::transport
