// CmRendezvous: how the processes of one machine share connection requests. Requests are addressed
// to no process, so any member of the port group may read one; it hands it to the process that has
// leased the port, by an abstract unix socket named after user, port space, port and address. The
// kernel gives uniqueness, removal at death, and a refusal if nobody is there.
//
// A lease without a listener is not read from: what was handed over waits for listen(). Guarded by
// its owner's lock. Whoever can reach the socket can reach the UDP port as well, so what comes in
// is believed no more than a datagram from the network.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "process/cm_gsi.hpp"
#include "process/cm_service.hpp"

namespace feroce::process {

class CmRendezvous {
public:
    // `epoll`: where sockets of listeners are waited for, as data.u64 = lease id.
    CmRendezvous(int epoll, RandomSource& random) : epoll_(epoll), random_(random) {}

    Result<PortLease> lease(wire::PortSpace space, const Gid& address, std::uint16_t port);
    void end(const PortLease& lease);
    void set_listening(const PortLease& lease, bool listening);
    // True if another process has taken the request, or will when its queue has room.
    bool offer(const CmDatagram& request);
    // What others have handed to the listener on that lease, if there is one.
    void drain(std::uint64_t lease, std::vector<CmDatagram>& out);
    // Tries again what found a full queue; true if some of it still does.
    bool retry();
    void abandon();  // In a forked child.

private:
    struct Held {
        int fd = -1;
        bool listening = false;
        std::string name;
    };
    struct Blocked {
        std::string name;
        CmDatagram request;
        int tries = 0;
    };
    enum class Handed : std::uint8_t { Taken, Full, Nobody };
    Handed try_hand(const std::string& name, const CmDatagram& request);
    bool hand_to(const std::string& name, const CmDatagram& request);
    bool is_ours(const std::string& name) const;

    int epoll_;
    RandomSource& random_;
    std::uint32_t next_id_ = 1;
    std::map<std::uint32_t, Held> held_;
    int sender_ = -1;
    std::deque<Blocked> blocked_;
};

}  // namespace feroce::process
