#include "transport/receive_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/assert.hpp"

namespace feroce::transport {

ReceiveQueue::ReceiveQueue(PdId pd, std::uint32_t wr_max, std::uint32_t sge_max)
    : pd_(pd),
      wr_max_(std::max(wr_max, 1U)),
      sge_max_(std::max(sge_max, 1U)),
      slots_(wr_max_),
      sges_(sge_max_ == 1 ? 0 : std::size_t{wr_max_} * sge_max_) {}

void ReceiveWqe::set_list(std::span<const mem::Sge> sges) {
    ASSERT(sges.size() <= std::max(sge_max_, 1U));
    sge_count_ = static_cast<std::uint32_t>(sges.size());
    if (sges.size() == 1) first_ = sges.front();
    if (sges.size() > 1) std::copy(sges.begin(), sges.end(), many_.get());
}

Result<void> ReceiveQueue::post(const ReceiveWr& wr) {
    if (wr.sges.size() > sge_max_) return Error{EINVAL, "the receive has more SGEs than allowed"};
    std::uint64_t length = 0;
    for (const mem::Sge& sge : wr.sges) length += sge.length;
    const std::lock_guard guard(lock_);
    if (slots_.full()) return Error{ENOMEM, "the receive queue is full"};
    Slot& slot = slots_.push();
    slot.wr_id = wr.wr_id;
    slot.sge_count = static_cast<std::uint32_t>(wr.sges.size());
    slot.length = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(length, std::numeric_limits<std::uint32_t>::max()));
    if (wr.sges.size() == 1) slot.first_sge = wr.sges.front();
    if (wr.sges.size() > 1) std::copy(wr.sges.begin(), wr.sges.end(), list_of(slot));
    return {};
}

bool ReceiveQueue::take(ReceiveWqe& out) {
    const std::lock_guard guard(lock_);
    if (slots_.empty()) return false;
    const Slot& slot = slots_.front();
    out.wr_id = slot.wr_id;
    out.length = slot.length;
    out.set_list({slot.sge_count > 1 ? list_of(slot) : &slot.first_sge, slot.sge_count});
    slots_.pop();
    if (limit_ > 0 && slots_.size() < limit_) {
        limit_ = 0;
        limit_event_ = true;
    }
    return true;
}

std::optional<std::uint64_t> ReceiveQueue::discard() {
    const std::lock_guard guard(lock_);
    if (slots_.empty()) return std::nullopt;
    const std::uint64_t wr_id = slots_.front().wr_id;
    slots_.pop();
    return wr_id;
}

std::uint32_t ReceiveQueue::available() {
    const std::lock_guard guard(lock_);
    return static_cast<std::uint32_t>(slots_.size());
}

void ReceiveQueue::clear() {
    const std::lock_guard guard(lock_);
    while (!slots_.empty()) slots_.pop();
}

void ReceiveQueue::arm_limit(std::uint32_t limit) {
    const std::lock_guard guard(lock_);
    limit_ = limit;
    limit_event_ = limit > 0 && slots_.size() < limit;
    if (limit_event_) limit_ = 0;
}

std::uint32_t ReceiveQueue::limit() {
    const std::lock_guard guard(lock_);
    return limit_;
}

bool ReceiveQueue::consume_limit_event() {
    const std::lock_guard guard(lock_);
    return std::exchange(limit_event_, false);
}

}  // namespace feroce::transport
