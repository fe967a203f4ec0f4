// CmArrivals: brings what has arrived for the connection manager, each peer's messages in order.
//
// They come by three ways. A request names no process, so it lies in a socket that all processes
// read, or another process hands it to us; all else is steered to this process's slot. A peer that
// sent RTU for one connection and then REQ for the next must not be heard the other way round: when
// a request has been read, all that was sent before it lies in the slot's socket at least, so that
// is emptied, and then answers go before requests. (An answer may so overtake a request that was
// sent before it: then it is about another connection.)
#pragma once

#include <vector>

#include "cm/types.hpp"
#include "host/rendezvous.hpp"
#include "process/cm_gsi.hpp"

namespace feroce::process {

struct CmArrival {
    CmDatagram message;
    cm::Origin origin = cm::Origin::Network;
};

// Keeps the order among answers and among requests.
void put_answers_first(std::vector<CmArrival>& arrivals);

class CmArrivals {
public:
    CmArrivals(Shard& shard, CmGsi& gsi, host::Rendezvous& rendezvous)
        : shard_(shard), gsi_(gsi), rendezvous_(rendezvous) {}

    // Under the lock that guards the rendezvous. Valid until the next call.
    const std::vector<CmArrival>& collect(bool requests_waiting);
    // What was steered to this process's slot, and the port's reader has taken. The same rules.
    const std::vector<CmArrival>& collect_steered();

private:
    void take_batch(cm::Origin origin);

    Shard& shard_;
    CmGsi& gsi_;
    host::Rendezvous& rendezvous_;
    std::vector<CmDatagram> batch_;
    std::vector<CmArrival> arrivals_;
};

}  // namespace feroce::process
