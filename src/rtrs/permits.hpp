// The right to use a chunk of the server: one permit per chunk. A request that finds none waits in
// line and gets the next one that is given back, so nobody is overtaken.
#pragma once

#include <cstdint>
#include <vector>

#include "feroce/list.hpp"
#include "feroce/rtrs/request.hpp"

namespace feroce::rtrs {

class Permits {
public:
    using Waiter = PermitWaiter;

    explicit Permits(std::uint16_t count);

    // True: waiter.permit is its own. False: it waits in line.
    bool take(Waiter& waiter);
    // The waiter that has got the permit in the same moment; nullptr if nobody waits.
    Waiter* give(std::uint16_t permit);
    void cancel(Waiter& waiter) { waiting_.remove(waiter); }
    // Takes the first in line out of it; nullptr if nobody waits.
    Waiter* cancel_first() { return waiting_.pop_front(); }

    std::uint16_t count() const { return count_; }
    std::uint16_t taken() const { return taken_; }
    std::size_t waiting() const { return waiting_.size(); }

private:
    std::vector<std::uint64_t> free_;  // A bit per permit.
    std::uint16_t count_;
    std::uint16_t taken_ = 0;
    rdma::CountedList<Waiter> waiting_;
};

}  // namespace feroce::rtrs
