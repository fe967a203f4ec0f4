// Estate: the connections that a process leaves behind when it dies, whatever the way. What is kept
// here outlives the process as long as another one of its group lives; one of those, the heir,
// takes it over and tells the peers.
//
// Guarded by its owner's lock.
#pragma once

#include <vector>

#include "cm/bond.hpp"

namespace feroce::host {

class Estate {
public:
    virtual ~Estate() = default;
    // Bounded: what does not fit is not kept. One bond an id.
    virtual void keep(const cm::Bond& bond) = 0;
    virtual void forget(wire::CommId local_id) = 0;  // Fine for one that was not kept.
    // Appends the bonds of processes that have died; each is given to one heir only.
    virtual void inherit(std::vector<cm::Bond>& out) = 0;
};

}  // namespace feroce::host
