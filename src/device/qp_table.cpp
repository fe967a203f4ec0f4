#include "device/qp_table.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace feroce::device {

namespace {

constexpr std::uint32_t kLowFirst = 2;
constexpr std::uint32_t kLowLast = 0xfffe;
constexpr std::uint32_t kLowCount = kLowLast - kLowFirst + 1;

}  // namespace

QpTable::QpTable(std::uint8_t slot, std::uint32_t qp_max, RandomSource& random)
    : slot_(slot),
      qp_max_(std::min(qp_max, kLowCount)),
      random_(random),
      qps_(kLowMask + 1),
      free_(kLowCount) {
    for (std::uint32_t low = kLowFirst; low <= kLowLast; ++low)
        free_.push(static_cast<std::uint16_t>(low));
}

Result<Qpn> QpTable::allocate() {
    if (allocated_ >= qp_max_) return Error{ENOMEM, "no more queue pairs: the device's limit"};
    // Any of the free numbers but the half freed last.
    const std::size_t quarantined = std::min(freed_, free_.size() / 2);
    const std::size_t chosen = random_.next() % (free_.size() - quarantined);
    std::swap(free_[chosen], free_.front());
    const std::uint16_t low = free_.front();
    free_.pop();
    ++allocated_;
    return Qpn{std::uint32_t{slot_} << 16 | low};
}

void QpTable::insert(std::unique_ptr<transport::QueuePair> qp) {
    const Qpn qpn = qp->qpn();
    ASSERT(qpn == kGeneralServicesQpn || qpn.raw >> 16 == slot_);
    auto& place = qps_[qpn.raw & kLowMask];
    ASSERT(place == nullptr);
    place = std::move(qp);
    ++size_;
}

void QpTable::erase(Qpn qpn) {
    ASSERT(find(qpn) != nullptr);
    qps_[qpn.raw & kLowMask].reset();
    --size_;
    if (qpn == kGeneralServicesQpn) return;
    free_.push(static_cast<std::uint16_t>(qpn.raw & kLowMask));
    ++freed_;
    --allocated_;
}

}  // namespace feroce::device
