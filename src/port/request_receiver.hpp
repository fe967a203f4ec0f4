// RequestReceiver: the sockets of index 0, where connection requests land because they name no
// process yet. Every process with a connection manager reads them, and whoever gets a request that
// is for another passes it on (host/rendezvous.hpp).
#pragma once

#include "port/fd.hpp"
#include "port/port_group.hpp"
#include "port/udp_receiver.hpp"

namespace feroce::port {

class RequestReceiver {
public:
    RequestReceiver(const PortGroup& group, Capture* capture);

    int fd() const { return set_.get(); }            // Readable while requests wait; -1: none.
    bool poll(Instant now, device::Engine& engine);  // False if nothing had arrived.

private:
    UdpReceiver v4_;
    UdpReceiver v6_;
    Fd set_;
};

}  // namespace feroce::port
