// Several rendezvous of one process stand for as many processes. Slots that processes beside us
// hardly get.
#include "port/unix_rendezvous.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "port/clock.hpp"
#include "port/real_host.hpp"
#include "wire/cm_path_messages.hpp"

namespace feroce::port {
namespace {

using namespace std::chrono_literals;

constexpr SlotNumber kSlot = 62;
const Gid kUs = Gid::from_v4(0x7f00'0001);
const Gid kPeer = Gid::from_v4(0x7f00'0002);

template <class Message>
CmDatagram datagram(const Message& message) {
    return {kPeer, kUs, wire::make_cm_mad(1, message)};
}

class RendezvousTest : public testing::Test {
protected:
    std::unique_ptr<host::Rendezvous> open(SlotNumber slot, int requests_fd = -1) {
        Result<std::unique_ptr<host::Rendezvous>> opened = UnixRendezvous::open(
            {.network = network, .user = user, .slot = slot, .requests_fd = requests_fd}, random,
            [this] {
                Neighbours out;
                out.owner = user;
                return out;
            });
        EXPECT_TRUE(opened.has_value());
        return std::move(*opened);
    }
    static std::vector<CmDatagram> received(host::Rendezvous& who, Duration patience) {
        who.wait(monotonic_now() + patience);
        std::vector<CmDatagram> out;
        who.drain(out);
        return out;
    }

    const std::uint32_t user = ::geteuid();
    const std::shared_ptr<Network> network = *Network::enter();
    KernelRandom random;
    std::unique_ptr<host::Rendezvous> a = open(kSlot), b = open(kSlot + 1);
};

TEST_F(RendezvousTest, APortIsLeasedOnce) {
    const Result<PortLease> first = a->lease(wire::PortSpace::Tcp, kUs, 0);
    ASSERT_TRUE(first.has_value());
    const Result<PortLease> second = b->lease(wire::PortSpace::Tcp, kUs, first->port);
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, EADDRINUSE);
    a->end(*first);
    EXPECT_TRUE(b->lease(wire::PortSpace::Tcp, kUs, first->port).has_value());
}

// A program that names loopback may reach it through a device that has another address.
TEST_F(RendezvousTest, ARequestGoesToTheAddressThatTheSenderNamed) {
    const PortLease lease = *b->lease(wire::PortSpace::Tcp, kUs, 0);
    const Gid device = Gid::from_v4(0x0a62'0001);
    wire::CmReq req{.local_id = {7},
                    .service_id = wire::make_service_id(wire::PortSpace::Tcp, lease.port)};
    const auto private_data = std::span(req.private_data).first<wire::CmaHeader::kSize>();
    wire::CmaHeader::make(kUs, kUs, 9).emit(private_data);
    const CmDatagram request{device, device, wire::make_cm_mad(1, req)};
    EXPECT_TRUE(a->offer(request));
    EXPECT_EQ(received(*b, 10s).size(), 1u);
    wire::CmaHeader::make(device, device, 9).emit(private_data);
    EXPECT_FALSE(a->offer({device, device, wire::make_cm_mad(1, req)})) << "not listened to";
}

TEST_F(RendezvousTest, ARequestGoesToWhoHasThePort) {
    const PortLease lease = *b->lease(wire::PortSpace::Tcp, kUs, 0);
    const CmDatagram request = datagram(wire::CmReq{
        .local_id = {7}, .service_id = wire::make_service_id(wire::PortSpace::Tcp, lease.port)});
    EXPECT_TRUE(a->offer(request));
    const std::vector<CmDatagram> got = received(*b, 10s);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].mad, request.mad);
    EXPECT_EQ(got[0].source, kPeer);
    EXPECT_FALSE(b->offer(request)) << "it is ours";
    b->end(lease);
    EXPECT_FALSE(a->offer(request)) << "nobody is there";
}

// Neither listens. A request that one handed to the other and got back would go round for ever.
TEST_F(RendezvousTest, WhoHasAPortByAnotherNameDoesNotHandItsRequestsOn) {
    const std::unique_ptr<host::Rendezvous> c = open(kSlot - 1);
    const PortLease lease = *b->lease(wire::PortSpace::Tcp, kUs, 0);
    ASSERT_TRUE(c->lease(wire::PortSpace::Tcp, Gid::from_v4(0), lease.port).has_value());
    const CmDatagram request = datagram(wire::CmReq{
        .local_id = {7}, .service_id = wire::make_service_id(wire::PortSpace::Tcp, lease.port)});
    EXPECT_TRUE(a->offer(request));
    EXPECT_EQ(received(*b, 10s).size(), 1u);
    EXPECT_FALSE(b->offer(request));
    EXPECT_FALSE(c->offer(request));
    EXPECT_TRUE(received(*c, 0s).empty());
}

// What it read would mostly be another's, and would have to be handed over.
TEST_F(RendezvousTest, WhoHasNoPortLeavesRequestsToOthersFirst) {
    const Fd requests(::eventfd(1, EFD_CLOEXEC));
    const std::unique_ptr<host::Rendezvous> c = open(kSlot - 1, requests.get());
    EXPECT_FALSE(c->wait(Instant{})) << "others come first";
    EXPECT_TRUE(c->wait(monotonic_now() + 10s)) << "nobody came";
    EXPECT_FALSE(c->wait(Instant{})) << "and first again";
    std::uint64_t value = 0;
    ASSERT_EQ(::read(requests.get(), &value, sizeof value), 8);
    EXPECT_TRUE(c->wait(monotonic_now() + 10s)) << "it cannot know that somebody came";
    EXPECT_FALSE(c->wait(monotonic_now() + 20ms));
    const PortLease lease = *c->lease(wire::PortSpace::Tcp, kUs, 0);
    ASSERT_EQ(::write(requests.get(), &value, sizeof value), 8);
    EXPECT_TRUE(c->wait(Instant{})) << "it may be its own";
    c->end(lease);
    EXPECT_FALSE(c->wait(Instant{}));
}

TEST_F(RendezvousTest, ARefusalOfNobodyInParticularGoesToAllButNotTooOften) {
    const std::unique_ptr<host::Rendezvous> c = open(kSlot - 1);
    const CmDatagram refusal =
        datagram(wire::CmRej{.local_id = {7}, .reason = wire::RejectReason::Timeout});
    constexpr std::size_t kFlood = 100;
    std::size_t taken = 0;
    for (std::size_t i = 0; i < kFlood; ++i) taken += a->offer(refusal) ? 1 : 0;
    EXPECT_GE(taken, 1u);
    EXPECT_LT(taken, kFlood);
    for (host::Rendezvous* other : {b.get(), c.get()}) {
        const std::vector<CmDatagram> got = received(*other, 10s);
        ASSERT_EQ(got.size(), taken);
        EXPECT_EQ(got[0].mad, refusal.mad);
    }
    EXPECT_TRUE(received(*a, 0s).empty());
}

TEST_F(RendezvousTest, AnIdWithoutALeaseEndsNone) {
    b->end({});
    EXPECT_TRUE(a->offer(datagram(wire::CmRej{.local_id = {7}})));
    EXPECT_EQ(received(*b, 10s).size(), 1u);
}

}  // namespace
}  // namespace feroce::port
