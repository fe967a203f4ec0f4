// UnixRendezvous: the processes of this machine find each other by abstract unix sockets, named
// after user, port space, port and address. The kernel gives uniqueness, removal at death, and a
// refusal if nobody is there. Anybody can take a name, so both ends ask the kernel who the other
// is: requests are handed to that user alone, and taken from nobody but this user and the owner of
// the UDP port. A process that changed its user is known by the slot that it owns, and to guests by
// the token that only they and the owner's processes know. The processes of one user come before
// those of another.
//
// Every process reads requests, and one that gets another's has to hand it over, which costs a
// dozen system calls. So a process that has leased no port looks for them a moment later than the
// others: what is left then is nobody's, or a stranger's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "host/rendezvous.hpp"
#include "port/backlog.hpp"
#include "port/event_set.hpp"
#include "port/fd.hpp"
#include "port/mailbox.hpp"
#include "port/neighbours.hpp"
#include "port/network.hpp"

namespace feroce::port {

using host::CmDatagram;
using host::PortLease;

class UnixRendezvous final : public host::Rendezvous {
public:
    struct Settings {
        std::shared_ptr<Network> network;  // Names mean something there alone.
        std::uint32_t user = 0;            // As whom this process shares the port.
        SlotNumber slot = 0;               // Of the port, which names this process to others.
        int requests_fd = -1;  // Readable while requests wait in the port; -1 if it has none.
    };
    static Result<std::unique_ptr<host::Rendezvous>> open(const Settings& settings,
                                                          RandomSource& random,
                                                          std::function<Neighbours()> neighbours);

    Result<PortLease> lease(wire::PortSpace space, const Gid& address, std::uint16_t port) override;
    void end(const PortLease& lease) override;
    bool offer(const CmDatagram& message) override;
    Instant retry(Instant now) override;
    void drain(std::vector<CmDatagram>& out) override;
    bool wait(Instant until) override;
    void wake() override;
    void abandon() override;

private:
    UnixRendezvous(const Settings& settings, RandomSource& random,
                   std::function<Neighbours()> neighbours)
        : network_(settings.network),
          user_(settings.user),
          random_(random),
          neighbours_(std::move(neighbours)),
          requests_fd_(settings.requests_fd) {}
    bool hand_to(const Neighbours& neighbours, const std::string& mailbox, std::uint32_t user,
                 const CmDatagram& request);
    bool offer_to_all(const CmDatagram& message);
    Result<void> hold(std::uint32_t lease, std::string name);
    bool is_ours(const std::string& name) const;
    bool is_leased(std::uint64_t service, const Gid& address) const;
    void drain_box(const Mailbox& box, std::vector<CmDatagram>& out);
    void watch_requests(bool watch);
    bool found_requests(Instant now);

    std::shared_ptr<Network> network_;
    std::uint32_t user_;
    RandomSource& random_;
    std::function<Neighbours()> neighbours_;
    Fd epoll_;
    Doorbell doorbell_;
    const int requests_fd_;
    std::vector<std::uint64_t> called_;     // Leases that have mail. Of the thread that waits.
    Instant requests_rest_ = kNever;        // Until when others read them; the same thread's.
    std::atomic<std::uint32_t> leases_{0};  // A hint for that thread, hence relaxed.
    std::uint32_t next_id_ = 1;
    std::map<std::uint32_t, Mailbox> boxes_;  // By lease; what is offered to all beside them.
    Instant next_offer_to_all_{};
    Backlog backlog_;
};

}  // namespace feroce::port
