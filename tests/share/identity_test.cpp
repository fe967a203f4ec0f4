// Processes that give up their privileges after they have opened the device, as daemons do, or move
// to another network. They stay the processes of the user as whom they came, and where they came.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "attacks.hpp"
#include "port/real_host.hpp"
#include "ring.hpp"
#include "verbs/test_pair.hpp"
#include "wire/cm_path_messages.hpp"

namespace feroce::share {
namespace {

using std::chrono::seconds;

constexpr std::uint16_t kServicePort = 7471;

host::CmDatagram request(std::uint32_t id = 7) {
    return {loopback_v4(2), loopback_v4(1),
            wire::make_cm_mad(1, wire::CmReq{.local_id = {id},
                                             .service_id = wire::make_service_id(
                                                 wire::PortSpace::Tcp, kServicePort)})};
}

// A process of the machine with a connection manager; a thread lets newcomers in.
class Node {
public:
    Node() : host_(options()) {
        Result<std::unique_ptr<host::HostPort>> port = host_.open_port();
        if (!port) return;
        port_ = std::move(*port);
        Result<std::unique_ptr<host::Rendezvous>> opened = host_.open_rendezvous(port_->slot(), -1);
        if (!opened) return;
        rendezvous_ = std::move(*opened);
        thread_ = std::thread([this] {
            while (!stop_) port_->wait(host_.now() + std::chrono::milliseconds(10));
        });
    }
    ~Node() {
        stop_ = true;
        if (thread_.joinable()) thread_.join();
    }
    bool works() const { return thread_.joinable(); }
    bool listen() {
        return rendezvous_->lease(wire::PortSpace::Tcp, loopback_v4(1), kServicePort).has_value();
    }
    bool offer() { return rendezvous_->offer(request()); }
    // Whether a request comes, and the right one.
    bool receives() {
        std::vector<host::CmDatagram> got;
        for (int i = 0; i < 20 && got.empty(); ++i) {
            rendezvous_->wait(host_.now() + seconds(1));
            rendezvous_->drain(got);
        }
        return got.size() == 1 && got[0].mad == request().mad;
    }

    static port::RealHost::Options options() {
        port::RealHost::Options out;
        out.devices = "lo";
        return out;
    }

private:
    port::RealHost host_;
    std::unique_ptr<host::HostPort> port_;
    std::unique_ptr<host::Rendezvous> rendezvous_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

class Identity : public testing::Test {
protected:
    void SetUp() override { enter_private_network(); }
    void TearDown() override {
        for (const pid_t pid : pids) ::kill(pid, SIGKILL);
        for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
    }

    // A child that does `body`; it has come so far when it calls what it is given.
    using Body = std::function<int(const std::function<void()>& ready)>;
    pid_t start(const Body& body) {
        int ends[2];
        EXPECT_EQ(::pipe(ends), 0);
        const pid_t child = ::fork();
        if (child == 0) ::_exit(body([&] { (void)!::write(ends[1], "r", 1); }));
        pids.push_back(child);
        ::close(ends[1]);
        char byte;
        EXPECT_EQ(::read(ends[0], &byte, 1), 1) << "it ended too early";
        ::close(ends[0]);
        return child;
    }
    int result_of(pid_t child) {
        std::erase(pids, child);
        return exit_status(child);
    }
    static int in_child(const std::function<int()>& body) {
        const pid_t child = ::fork();
        if (child == 0) ::_exit(body());
        return exit_status(child);
    }
    static int as_user(const std::function<int()>& body) {
        return in_child([&] { return become_ordinary_user() ? body() : 99; });
    }

    // The one reads a request that is for the other.
    static int reader(bool drops, const std::function<void()>& ready) {
        Node node;
        if (!node.works() || (drops && !become_ordinary_user())) return 2;
        ready();
        // The other may not listen yet.
        return await(seconds(20), [&] { return node.offer(); }) ? (::pause(), 0) : 3;
    }

    std::vector<pid_t> pids;
};

int stays(const std::function<void()>& ready) {
    ready();
    ::pause();
    return 0;
}

TEST_F(Identity, AFounderThatDroppedRootServesRootAndGivesItsSocketsToNobodyElse) {
    start([](const auto& ready) {
        if (verbs::open_loopback() == nullptr || !become_ordinary_user()) return 1;
        return stays(ready);
    });
    const auto open = [] { return verbs::open_loopback() != nullptr ? 0 : errno; };
    EXPECT_EQ(in_child(open), 0);
    EXPECT_EQ(in_child(try_to_join), 4) << "root belongs to the group";
    EXPECT_EQ(as_user(try_to_join), 0) << "the user that the founder has become does not";
    EXPECT_EQ(as_user(open), 0) << "but is a guest";
}

TEST_F(Identity, AProcessThatDroppedRootHandsRequestsToTheListenersOfRoot) {
    const pid_t listener = start([](const auto& ready) {
        Node node;
        if (!node.works() || !node.listen()) return 2;
        ready();
        return node.receives() ? 0 : 1;
    });
    start([](const auto& ready) { return reader(true, ready); });
    EXPECT_EQ(result_of(listener), 0);
}

TEST_F(Identity, AListenerThatDroppedRootIsReached) {
    for (const bool drops_first : {false, true}) {
        const pid_t listener = start([&](const auto& ready) {
            Node node;
            if (!node.works() || (drops_first && !become_ordinary_user()) || !node.listen())
                return 2;
            if (!drops_first && !become_ordinary_user()) return 3;
            ready();
            return node.receives() ? 0 : 1;
        });
        const pid_t other = start([](const auto& ready) { return reader(false, ready); });
        EXPECT_EQ(result_of(listener), 0) << drops_first;
        ::kill(other, SIGKILL);
        result_of(other);
    }
}

TEST_F(Identity, AnOwnerThatDroppedRootHandsRequestsToItsGuests) {
    start([](const auto& ready) { return reader(true, ready); });
    EXPECT_EQ(as_user([] {
                  Node node;
                  if (!node.works() || !node.listen()) return 2;
                  return node.receives() ? 0 : 1;
              }),
              0);
}

// A letter that no process of the port's owner has written.
TEST_F(Identity, AStrangersRequestIsNotTaken) {
    constexpr unsigned kStranger = 65533;
    const pid_t listener = start([](const auto& ready) {
        Node node;
        if (!node.works() || !node.listen()) return 2;
        ready();
        return node.receives() ? 0 : 1;
    });
    EXPECT_EQ(in_child([] {
                  port::KernelRandom random;
                  if (::setresuid(kStranger, kStranger, kStranger) != 0) return 1;
                  auto own =
                      port::UnixRendezvous::open({.network = *port::Network::enter(), .slot = 60},
                                                 random, [] { return port::Neighbours(); });
                  return own && (*own)->offer(request(8)) ? 0 : 2;
              }),
              0);
    // The first that is taken is root's.
    start([](const auto& ready) { return reader(false, ready); });
    EXPECT_EQ(result_of(listener), 0);
}

// The network that a thread moves to has nothing but a loopback interface, which is down.
bool leave_network() {
    return ::unshare(CLONE_NEWNET) == 0;
}

bool writes(verbs::Endpoint& from, verbs::Endpoint& to) {
    return from.post(IBV_WR_RDMA_WRITE, from.sge(0, 4096), to.address(0), to.mr->rkey) == 0 &&
           from.completion().status == IBV_WC_SUCCESS;
}

int move_with_devices(bool after_traffic) {
    ::setenv("FEROCE_SHARDS", "4", 1);
    ibv_context* context = verbs::open_loopback();
    if (context == nullptr) return 1;
    verbs::Endpoint left(context);
    verbs::Endpoint right(context);
    verbs::connect(left, right);
    if (after_traffic && !writes(left, right)) return 2;
    if (!leave_network()) return 3;
    ibv_port_attr port{};
    if (___ibv_query_port(context, 1, &port) != 0 || port.state != IBV_PORT_ACTIVE) return 4;
    ibv_context* again = verbs::open_loopback();
    if (again == nullptr || !writes(left, right)) return 5;
    verbs::Endpoint near(again);
    verbs::Endpoint far(again);
    verbs::connect(near, far);
    return writes(near, far) && !testing::Test::HasFailure() ? 0 : 6;
}

TEST_F(Identity, AThreadThatLeavesTheNetworkKeepsItsDevices) {
    EXPECT_EQ(in_child([] { return move_with_devices(true); }), 0);
}

TEST_F(Identity, TheFirstPacketsOfAThreadThatLeftTheNetworkArrive) {
    EXPECT_EQ(in_child([] { return move_with_devices(false); }), 0);
}

// False if a neighbour in this network has the port already.
bool lease(host::Rendezvous& at) {
    return at.lease(wire::PortSpace::Tcp, loopback_v4(1), kServicePort).has_value();
}

// Everything is done in the network of the port; with that closed, the next one is opened where the
// caller is.
int move_with_port() {
    port::RealHost::Options options = Node::options();
    options.sharing = port::Sharing::Any;
    port::RealHost host(options);
    Result<std::unique_ptr<host::HostPort>> port = host.open_port();
    if (!port || host.identity().network != port::network_of_caller()) return 1;
    // Leased while we are there, so that the name is known to be that of the port's network.
    const auto before = host.open_rendezvous((*port)->slot(), -1);
    if (!before || !lease(**before) || !leave_network()) return 2;
    if (host.identity().network == port::network_of_caller()) return 3;
    const std::vector<host::Interface> interfaces = host.interfaces();
    if (interfaces.empty() || !interfaces[0].up) return 4;
    if (!host.source_for(loopback_v4(1), 0)) return 5;
    Result<std::unique_ptr<host::HostPort>> second = host.open_port();
    if (!second) return 6;
    const auto after = host.open_rendezvous((*second)->slot(), -1);
    if (!after) return 7;
    if (lease(**after)) return 8;
    std::uint64_t network = 0;
    if (!host.spawn([&] { network = port::network_of_caller(); })) return 9;
    return network == host.identity().network ? 0 : 10;
}

TEST_F(Identity, AMemberThatLeavesTheNetworkStaysInIt) {
    EXPECT_EQ(in_child(move_with_port), 0);
}

TEST_F(Identity, AGuestThatLeavesTheNetworkStaysInIt) {
    start([](const auto& ready) {
        if (!become_ordinary_user()) return 1;
        const Node owner;
        return owner.works() ? stays(ready) : 2;
    });
    EXPECT_EQ(in_child(move_with_port), 0);
}

TEST_F(Identity, APortThatIsOpenedAgainIsInTheNetworkOfItsOpener) {
    EXPECT_EQ(in_child([] {
                  port::RealHost host(Node::options());
                  if (!host.open_port() || !leave_network()) return 1;
                  const auto port = host.open_port();
                  if (!port || host.identity().network != port::network_of_caller()) return 2;
                  const std::vector<host::Interface> interfaces = host.interfaces();
                  return interfaces.empty() || !interfaces[0].up ? 0 : 3;
              }),
              0);
}

}  // namespace
}  // namespace feroce::share
