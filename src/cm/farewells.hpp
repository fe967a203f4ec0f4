// Farewells: DREQs in the name of processes that have died. The answers go to the dead, so each is
// sent a few times, ever less often, whatever comes back: a peer takes the first and answers the
// rest. Paced, so that a large estate does not fill the peers' queues.
#pragma once

#include <cstdint>
#include <deque>

#include "base/time.hpp"
#include "cm/bond.hpp"
#include "cm/types.hpp"

namespace feroce::cm {

class Farewells {
public:
    static constexpr int kTimes =
        5;  // With a fifth of all frames lost, one peer in 3,000 misses it.
    static constexpr std::size_t kMax =
        16384;  // The rest of the peers must find out by themselves.

    void add(Instant now, const Bond& bond);
    std::uint64_t run(Instant now, MadPort& port);  // How many were sent.
    Instant next_wakeup() const;
    std::size_t size() const { return farewells_.size(); }

private:
    struct Farewell {
        Bond bond;
        Instant due;
        int sent = 0;
    };

    std::deque<Farewell> farewells_;
    Instant next_ = kNever;  // The earliest `due`, or when the next burst may leave.
};

}  // namespace feroce::cm
