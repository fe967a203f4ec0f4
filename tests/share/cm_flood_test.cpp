// An ordinary user floods the connection manager of another user's server: requests that it could
// serve, requests for ports where nobody listens, answers to what was never asked, and noise. The
// server does not even look at its events meanwhile. It keeps the threads it had, bounded memory,
// and serves the next honest client.
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "attacks.hpp"
#include "base/random.hpp"
#include "watched.hpp"
#include "wire/cma.hpp"
#include "wire/packet.hpp"

namespace feroce::share {
namespace {

constexpr unsigned kServer = 65530;  // Nobody else runs as this user, whose threads others count.
constexpr std::uint16_t kService = 7471;

// One datagram after the other to the connection manager, sealed as a device would.
class Flood {
public:
    Flood() : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        const int never_fragment = IP_PMTUDISC_DO;  // And id 0, which the seal covers.
        ::setsockopt(fd_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &never_fragment,
                     sizeof never_fragment);
        sockaddr_in own{};
        own.sin_family = AF_INET;
        own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof own;
        if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&own), size) == 0 &&
            ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0)
            source_port_ = ntohs(own.sin_port);
    }

    bool send(int number) {
        wire::MadBytes mad{};
        for (std::byte& byte : mad) byte = static_cast<std::byte>(random_.next());
        wire::MadHeader header;
        header.transaction = random_.next();
        header.attribute = static_cast<std::uint16_t>(wire::CmAttribute::Req);
        const wire::CmSpan message(mad.data() + wire::MadHeader::kSize, wire::kCmMessageSize);
        switch (number % 4) {
            case 0:
                request(kService).emit(message);
                break;
            case 1:
                request(static_cast<std::uint16_t>(random_.next())).emit(message);
                break;
            case 2:  // Another message, with ids that may be somebody's.
                header.attribute = static_cast<std::uint16_t>(0x10 + random_.below(12));
                for (std::size_t i : {0, 1, 2, 4, 5, 6}) message[i] = std::byte{0};
                break;
            default:
                if (random_.chance(0.5)) header.management_class = 1;
                break;
        }
        header.emit(
            std::span<std::byte, wire::MadHeader::kSize>(mad.data(), wire::MadHeader::kSize));
        return transmit(mad);
    }

private:
    wire::CmReq request(std::uint16_t port) {
        wire::CmReq req;
        req.local_id = {static_cast<std::uint32_t>(random_.next())};
        req.service_id = wire::make_service_id(wire::PortSpace::Tcp, port);
        req.local_ca_guid = random_.next();
        req.local_qpn = Qpn{static_cast<std::uint32_t>(random_.next() & 0xff'ffff)};
        req.starting_psn = Psn(static_cast<std::uint32_t>(random_.next()));
        req.responder_resources = req.initiator_depth = 1;
        req.remote_response_timeout = req.local_response_timeout = 20;
        req.retry_count = req.rnr_retry_count = 7;
        req.max_cm_retries = 15;
        req.path_mtu = 3;
        req.primary.local_gid = req.primary.remote_gid = loopback_v4(1);
        req.primary.hop_limit = 64;
        req.primary.local_ack_timeout = 14;
        const auto from = static_cast<std::uint16_t>(1024 + random_.below(60000));
        wire::CmaHeader::make(loopback_v4(1), loopback_v4(1), from)
            .emit(std::span<std::byte, wire::CmaHeader::kSize>(req.private_data.data(),
                                                               wire::CmaHeader::kSize));
        return req;
    }

    bool transmit(const wire::MadBytes& mad) {
        wire::Bth bth;
        bth.opcode = wire::Opcode::UdSendOnly;
        bth.destination = Qpn{1};
        bth.psn = Psn(static_cast<std::uint32_t>(random_.next()));
        wire::Extensions extensions;
        extensions.deth = {wire::kGeneralServicesQkey, Qpn{1}};
        std::vector<std::byte> packet(wire::packet_size(bth.opcode, mad.size()));
        wire::emit_headers(packet, bth, extensions);
        // The seal is last.
        std::memcpy(packet.data() + packet.size() - 4 - mad.size(), mad.data(), mad.size());
        wire::seal({loopback_v4(1), loopback_v4(1), source_port_}, 0, packet);
        const port::SocketAddress to = port::socket_address(loopback_v4(1), kPort, 0);
        return ::sendto(fd_.get(), packet.data(), packet.size(), 0, &to.any, to.length) >= 0;
    }

    port::Fd fd_;
    std::uint16_t source_port_ = 0;
    Prng random_{20261117};
};

sockaddr_in service_address() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(kService);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// The next event, which is acknowledged; -1 if none comes in time. `id` is that of a request.
int next_event(rdma_event_channel* channel, int milliseconds, rdma_cm_id** id = nullptr) {
    pollfd wait{channel->fd, POLLIN, 0};
    rdma_cm_event* event = nullptr;
    if (::poll(&wait, 1, milliseconds) != 1 || rdma_get_cm_event(channel, &event) != 0) return -1;
    const int type = event->event;
    if (id != nullptr) *id = event->id;
    rdma_ack_cm_event(event);
    return type;
}

// Listens, and looks at nothing until `go` is closed; then refuses all it was asked. How many
// requests there were goes to `told`, and again after the first honest one.
int serve(int go, int told) {
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id* listener = nullptr;
    sockaddr_in address = service_address();
    if (channel == nullptr || rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) != 0 ||
        rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)) != 0 ||
        rdma_listen(listener, 64) != 0)
        return 1;
    int requests = 0;
    if (::write(told, &requests, sizeof requests) != sizeof requests) return 2;
    char byte;
    if (::read(go, &byte, 1) != 0) return 3;
    for (;;) {
        rdma_cm_id* id = nullptr;
        const int type = next_event(channel, requests == 0 ? 30'000 : 1000, &id);
        if (type < 0) break;
        if (type != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
        ++requests;
        rdma_reject(id, nullptr, 0);
        rdma_destroy_id(id);
    }
    if (::write(told, &requests, sizeof requests) != sizeof requests) return 2;
    rdma_cm_id* honest = nullptr;
    while (next_event(channel, 60'000, &honest) != RDMA_CM_EVENT_CONNECT_REQUEST) {
    }
    rdma_reject(honest, "heard", 5);
    ::pause();
    return 0;
}

// An honest client: whether the server answered it.
int ask() {
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    sockaddr_in address = service_address();
    if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0 ||
        rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 5000) != 0 ||
        next_event(channel, 30'000) != RDMA_CM_EVENT_ADDR_RESOLVED ||
        rdma_resolve_route(id, 5000) != 0 ||
        next_event(channel, 30'000) != RDMA_CM_EVENT_ROUTE_RESOLVED)
        return 1;
    rdma_conn_param wishes{};
    wishes.qp_num = 77;
    wishes.retry_count = 7;
    if (rdma_connect(id, &wishes) != 0) return 2;
    return next_event(channel, 60'000) == RDMA_CM_EVENT_REJECTED ? 0 : 3;
}

bool become(unsigned user) {
    return ::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0;
}

TEST(CmFlood, CostsTheServerNoThreadsAndBoundedMemory) {
    enter_private_network();
    ::setenv("FEROCE_DEVICES", "lo", 1);
    int go[2], told[2];
    ASSERT_EQ(::pipe(go), 0);
    ASSERT_EQ(::pipe(told), 0);
    const pid_t server = ::fork();
    if (server == 0) {
        ::close(go[1]);
        ::_exit(become(kServer) ? serve(go[0], told[1]) : 99);
    }
    ::close(told[1]);
    int requests = -1;
    ASSERT_EQ(::read(told[0], &requests, sizeof requests), ssize_t{sizeof requests});
    Watched watched(server);
    const pid_t attacker = ::fork();
    if (attacker == 0) {
        if (!become(kOrdinaryUser)) ::_exit(99);
        Flood flood;
        int sent = 0;
        for (int i = 0; i < messages(); ++i)
            if (flood.send(i)) ++sent;
        ::_exit(sent == messages() ? 0 : 1);
    }
    EXPECT_EQ(watched.look_until_end_of(attacker), 0);
    watched.look();
    ::close(go[1]);
    ASSERT_EQ(::read(told[0], &requests, sizeof requests), ssize_t{sizeof requests});
    watched.look();
    watched.print(messages());
    std::printf("%d requests reached the server\n", requests);
    EXPECT_GT(requests, 0) << "no message reached the connection manager";
    EXPECT_LE(watched.threads, watched.threads_before + 1);
    EXPECT_LE(watched.memory, watched.memory_before + kGrowth);
    EXPECT_LE(watched.cpu(), 5 + 1e-3 * messages());

    const pid_t client = ::fork();
    if (client == 0) ::_exit(become(kServer) ? ask() : 99);
    int status = 0;
    EXPECT_EQ(::waitpid(client, &status, 0), client);
    EXPECT_EQ(status, 0) << "an honest client was not heard after the flood";
    ::kill(server, SIGKILL);
    ::waitpid(server, nullptr, 0);
}

}  // namespace
}  // namespace feroce::share
