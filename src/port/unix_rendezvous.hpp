// UnixRendezvous: the processes of this machine find each other by abstract unix sockets, named
// after user, port space, port and address. The kernel gives uniqueness, removal at death, and a
// refusal if nobody is there. Whoever can reach a socket can reach the UDP port as well, so what
// comes in is believed no more than a datagram from the network.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "device/rendezvous.hpp"

namespace feroce::port {

using device::CmDatagram;
using device::PortLease;

class UnixRendezvous final : public device::Rendezvous {
public:
    // `requests_fd`: readable while requests wait in the port; -1 if it has none.
    static Result<std::unique_ptr<device::Rendezvous>> open(int requests_fd, RandomSource& random);
    ~UnixRendezvous() override;

    Result<PortLease> lease(wire::PortSpace space, const Gid& address, std::uint16_t port) override;
    void end(const PortLease& lease) override;
    void set_listening(const PortLease& lease, bool listening) override;
    bool offer(const CmDatagram& message) override;
    bool retry() override;
    void drain(std::vector<CmDatagram>& out) override;
    bool wait(Instant until) override;
    void wake() override;
    void abandon() override;

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

    explicit UnixRendezvous(RandomSource& random) : random_(random) {}
    Handed try_hand(const std::string& name, const CmDatagram& request);
    bool hand_to(const std::string& name, const CmDatagram& request);
    bool is_ours(const std::string& name) const;
    void drain_lease(std::uint64_t lease, std::vector<CmDatagram>& out);

    RandomSource& random_;
    int epoll_ = -1;
    int doorbell_ = -1;
    std::vector<std::uint64_t> called_;  // Leases whose sockets are readable. Of who waits.
    std::uint32_t next_id_ = 1;
    std::map<std::uint32_t, Held> held_;
    int sender_ = -1;
    std::deque<Blocked> blocked_;
};

}  // namespace feroce::port
