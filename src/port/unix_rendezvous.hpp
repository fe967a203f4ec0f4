// UnixRendezvous: the processes of this machine find each other by abstract unix sockets, named
// after user, port space, port and address. The kernel gives uniqueness, removal at death, and a
// refusal if nobody is there. Anybody can take a name, so both ends ask the kernel who the other
// is: requests are handed to that user alone, and taken from nobody but this user and the owner of
// the UDP port. A process that changed its user is known by the slot that it owns, and to guests by
// the token that only they and the owner's processes know. The processes of one user come before
// those of another.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "host/rendezvous.hpp"
#include "port/neighbours.hpp"

namespace feroce::port {

using host::CmDatagram;
using host::PortLease;

class UnixRendezvous final : public host::Rendezvous {
public:
    struct Settings {
        std::uint32_t user = 0;  // As whom this process shares the port.
        std::uint8_t slot = 0;   // Of the port, which names this process to others.
        int requests_fd = -1;    // Readable while requests wait in the port; -1 if it has none.
    };
    static Result<std::unique_ptr<host::Rendezvous>> open(const Settings& settings,
                                                          RandomSource& random,
                                                          std::function<Neighbours()> neighbours);
    ~UnixRendezvous() override;

    Result<PortLease> lease(wire::PortSpace space, const Gid& address, std::uint16_t port) override;
    void end(const PortLease& lease) override;
    bool offer(const CmDatagram& message) override;
    bool retry() override;
    void drain(std::vector<CmDatagram>& out) override;
    bool wait(Instant until) override;
    void wake() override;
    void abandon() override;

private:
    struct Held {
        int fd = -1;
        std::string name;
    };
    struct Listener {
        std::string name;
        std::uint32_t user = 0;
        Tokens tokens{};  // By which a guest knows what we hand to it.
    };
    struct Blocked {
        Listener to;
        CmDatagram request;
        int tries = 0;
    };
    enum class Handed : std::uint8_t { Taken, Full, Nobody };

    UnixRendezvous(std::uint32_t user, RandomSource& random, std::function<Neighbours()> neighbours)
        : user_(user), random_(random), neighbours_(std::move(neighbours)) {}
    Handed try_hand(const Listener& to, const CmDatagram& request) const;
    bool hand_to(const Listener& to, const CmDatagram& request);
    bool hand_to_user(std::uint32_t user, const Tokens& tokens, std::uint64_t service,
                      const CmDatagram& request);
    void open_mailbox(std::uint8_t slot);
    bool offer_to_all(const CmDatagram& message);
    bool hold(int fd, std::uint32_t lease, std::string name);
    bool is_ours(const std::string& name) const;
    bool is_leased(std::uint64_t service, const Gid& address) const;
    void drain_lease(std::uint64_t lease, std::vector<CmDatagram>& out);

    std::uint32_t user_;
    RandomSource& random_;
    std::function<Neighbours()> neighbours_;
    int epoll_ = -1;
    int doorbell_ = -1;
    std::vector<std::uint64_t> called_;  // Leases whose sockets are readable. Of who waits.
    std::uint32_t next_id_ = 1;
    std::map<std::uint32_t, Held> held_;  // By lease; the mailbox beside them.
    Instant next_offer_to_all_{};
    std::deque<Blocked> blocked_;
};

}  // namespace feroce::port
