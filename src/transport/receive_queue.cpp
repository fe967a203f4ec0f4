#include "transport/receive_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/assert.hpp"

namespace feroce::transport {

ReceiveQueue::ReceiveQueue(PdId pd, std::uint32_t wr_max, std::uint32_t sge_max, Users users)
    : pd_(pd),
      wr_max_(std::max(wr_max, 1U)),
      sge_max_(std::max(sge_max, 1U)),
      users_(users),
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
    const std::unique_lock guard = hold();
    if (slots_.full()) return Error{ENOMEM, "the receive queue is full"};
    Slot& slot = slots_.push();
    slot.wr_id = wr.wr_id;
    slot.sge_count = static_cast<std::uint32_t>(wr.sges.size());
    slot.length = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(length, std::numeric_limits<std::uint32_t>::max()));
    if (wr.sges.size() == 1) slot.first_sge = wr.sges.front();
    if (wr.sges.size() > 1) std::copy(wr.sges.begin(), wr.sges.end(), list_of(slot));
    note_size();
    return {};
}

bool ReceiveQueue::take(ReceiveWqe& out) {
    const std::unique_lock guard = hold();
    if (slots_.empty()) return false;
    const Slot& slot = slots_.front();
    out.wr_id = slot.wr_id;
    out.length = slot.length;
    out.set_list({slot.sge_count > 1 ? list_of(slot) : &slot.first_sge, slot.sge_count});
    slots_.pop();
    note_size();
    if (limit_ > 0 && slots_.size() < limit_) {
        limit_ = 0;
        limit_event_.store(true, std::memory_order_relaxed);
    }
    return true;
}

std::optional<std::uint64_t> ReceiveQueue::discard() {
    const std::unique_lock guard = hold();
    if (slots_.empty()) return std::nullopt;
    const std::uint64_t wr_id = slots_.front().wr_id;
    slots_.pop();
    note_size();
    return wr_id;
}

void ReceiveQueue::clear() {
    const std::unique_lock guard = hold();
    slots_.clear();
    note_size();
}

bool ReceiveQueue::arm_limit(std::uint32_t limit) {
    const std::unique_lock guard = hold();
    const bool reached = slots_.size() < limit;
    limit_ = reached ? 0 : limit;
    limit_event_.store(false, std::memory_order_relaxed);
    return reached;
}

std::uint32_t ReceiveQueue::limit() {
    const std::unique_lock guard = hold();
    return limit_;
}

bool ReceiveQueue::consume_limit_event() {
    if (!limit_event_.load(std::memory_order_relaxed)) [[likely]]
        return false;
    return limit_event_.exchange(false, std::memory_order_relaxed);
}

}  // namespace feroce::transport
