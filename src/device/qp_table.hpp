// QpTable: the queue pairs of one shard by number, and the numbers themselves. A number is
// slot << 15 | low part. The low part is unpredictable, so that nobody can aim a packet at a queue
// pair it was not told of, and is kept out of use for as long as possible once freed, so that late
// packets of a dead queue pair find nobody. Low parts 0, 1 and 0x7fff are never given: they are
// those of QP0, of the general services QP (which is inserted under its own number) and of
// multicast. Its place in the table is the low part unscrambled, so that the table is dense.
// Owns its queue pairs. Engine lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "base/ring.hpp"
#include "device/number_scramble.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::device {

class QpTable {
public:
    QpTable(SlotNumber slot, std::uint32_t qp_max, RandomSource& random);

    // ENOMEM when qp_max queue pairs exist. The number must then be inserted, or given back.
    Result<Qpn> allocate();
    void give_back(Qpn qpn);
    // Under a number from allocate(), or under QPN 1, which does not count against qp_max.
    void insert(transport::QueuePairPtr qp);
    transport::QueuePair* find(Qpn qpn) const {
        transport::QueuePair* qp = qps_[place_of(qpn)].get();
        return qp != nullptr && qp->qpn() == qpn ? qp : nullptr;
    }
    // Whoever has that low part, or null. Does not touch the queue pair.
    const transport::QueuePair* peek(Qpn qpn) const { return qps_[place_of(qpn)].get(); }
    void erase(Qpn qpn);  // Destroys it; it must be there.
    // Whether the number was ever given: if nobody has it now, its queue pair was destroyed.
    bool was_given(Qpn qpn) const { return slot_of(qpn) == slot_ && place_of(qpn) < given_places_; }
    std::size_t size() const { return size_; }

    // In no order that means anything. `f` may erase the queue pair it is given. Looks at all
    // 32,768 places: not for the hot path.
    template <class F>
    void for_each(F&& f) {
        for (auto& qp : qps_)
            if (qp != nullptr) f(*qp);
    }
    template <class F>
    void for_each(F&& f) const {
        for (const auto& qp : qps_)
            if (qp != nullptr) f(static_cast<const transport::QueuePair&>(*qp));
    }

private:
    static constexpr std::uint32_t kLowCount = 1u << kQpnLowBits;

    std::uint16_t place_of(Qpn qpn) const {
        return scramble_.place(static_cast<std::uint16_t>(qpn.raw % kLowCount));
    }

    SlotNumber slot_;
    std::uint32_t qp_max_;
    RandomSource& random_;
    NumberScramble scramble_;
    std::vector<transport::QueuePairPtr> qps_;  // By place.
    std::size_t size_ = 0;
    std::uint32_t allocated_ = 0;
    Ring<std::uint16_t> free_;  // Places, never used ones first, then by when they were freed.
    std::size_t unused_ = 0;    // How many of them were never used.
    std::uint32_t given_places_ = 0;  // Those below were used, but for the reserved ones.
};

}  // namespace feroce::device
