#include "device/qp_table.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace feroce::device {

namespace {

constexpr std::uint32_t kReserved = 3;

bool is_reserved(std::uint16_t low) {
    return low <= kGeneralServicesQpn.raw || low == (kMulticastQpn.raw & 0x7fff);
}

}  // namespace

QpTable::QpTable(SlotNumber slot, std::uint32_t qp_max, RandomSource& random)
    : slot_(slot),
      qp_max_(std::min(qp_max, kLowCount - kReserved)),
      random_(random),
      scramble_(random),
      qps_(kLowCount),
      free_(kLowCount - kReserved) {
    for (std::uint32_t place = 0; place < kLowCount; ++place)
        if (!is_reserved(scramble_.number(static_cast<std::uint16_t>(place))))
            free_.push(static_cast<std::uint16_t>(place));
    unused_ = free_.size();
}

Result<Qpn> QpTable::allocate() {
    if (allocated_ >= qp_max_) return Error{ENOMEM, "no more queue pairs: the device's limit"};
    if (unused_ > 0) {
        --unused_;
    } else {
        // Any of the free ones but the half freed last.
        const std::size_t old = free_.size() - free_.size() / 2;
        std::swap(free_[random_.next() % old], free_.front());
    }
    const std::uint16_t place = free_.front();
    free_.pop();
    given_places_ = std::max<std::uint32_t>(given_places_, place + 1U);
    ++allocated_;
    return qpn_of(slot_, scramble_.number(place));
}

void QpTable::insert(transport::QueuePairPtr qp) {
    const Qpn qpn = qp->qpn();
    ASSERT(qpn == kGeneralServicesQpn || slot_of(qpn) == slot_);
    auto& place = qps_[place_of(qpn)];
    ASSERT(place == nullptr);
    place = std::move(qp);
    ++size_;
}

void QpTable::erase(Qpn qpn) {
    ASSERT(find(qpn) != nullptr);
    qps_[place_of(qpn)].reset();
    --size_;
    if (qpn != kGeneralServicesQpn) give_back(qpn);
}

void QpTable::give_back(Qpn qpn) {
    free_.push(place_of(qpn));
    --allocated_;
}

}  // namespace feroce::device
