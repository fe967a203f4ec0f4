// Processes of several users on one address. The port belongs to the user who was first; the others
// are guests, and none of them gets at packets that are not his.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "attacks.hpp"
#include "port/real_host.hpp"
#include "port/relay_seat.hpp"
#include "port/unix_rendezvous.hpp"
#include "ring.hpp"
#include "wire/cm_path_messages.hpp"

namespace feroce::share {
namespace {

using std::chrono::seconds;

class Users : public testing::Test {
protected:
    void SetUp() override { enter_private_network(); }
    void TearDown() override {
        for (const pid_t pid : pids) ::kill(pid, SIGKILL);
        for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
    }

    // Members are of root as long as `guests_from` is not reached.
    void start_ring(std::uint32_t guests_from) {
        for (std::uint32_t i = 0; i < board.size; ++i) {
            const auto prepare = [&] { return i < guests_from || become_ordinary_user(); };
            pids.push_back(start_member(board, i, prepare));
            ASSERT_TRUE(await(seconds(30), [&] { return board.members[i].open.load(); })) << i;
        }
    }
    bool advances(std::uint32_t member, std::size_t link, std::uint32_t rounds = 50) {
        const LinkReport& report = board.members[member].links[link];
        const std::uint32_t mark = report.rounds;
        return await(seconds(60), [&] { return report.rounds >= mark + rounds; }) &&
               report.status == 0 && !report.wrong_bytes;
    }
    // The exit status of a child that does this.
    static int in_child(const std::function<int()>& body) {
        const pid_t child = ::fork();
        if (child == 0) ::_exit(body());
        return exit_status(child);
    }

    Board& board = Board::make(2);
    std::vector<pid_t> pids;
};

std::set<std::string> sockets_of(pid_t pid) {
    std::set<std::string> out;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
        const std::string target = std::filesystem::read_symlink(entry).string();
        if (target.starts_with("socket:[")) out.insert(target.substr(8, target.size() - 9));
    }
    return out;
}

// Inodes of the UDP sockets on our port.
std::set<std::string> port_sockets() {
    std::set<std::string> out;
    std::FILE* table = std::fopen("/proc/thread-self/net/udp", "re");
    char line[512], inode[32];
    unsigned port = 0;
    while (table != nullptr && std::fgets(line, sizeof line, table) != nullptr)
        if (std::sscanf(line, "%*d: %*[0-9A-F]:%x %*s %*s %*s %*s %*s %*u %*u %31s", &port,
                        inode) == 2 &&
            port == kPort)
            out.insert(inode);
    if (table != nullptr) std::fclose(table);
    return out;
}

bool share_any(const std::set<std::string>& a, const std::set<std::string>& b) {
    for (const std::string& s : a)
        if (b.count(s) != 0) return true;
    return false;
}

TEST_F(Users, AnOrdinaryUserIsTheGuestOfRoot) {
    start_ring(1);
    for (std::uint32_t m = 0; m < 2; ++m)
        for (const std::size_t link : {kNext, kBefore}) EXPECT_TRUE(advances(m, link));
    EXPECT_GE(port_sockets().size(), port::kChunkSlots);
    EXPECT_TRUE(share_any(port_sockets(), sockets_of(pids[0])));
    EXPECT_FALSE(share_any(port_sockets(), sockets_of(pids[1])));
    board.stop = true;
    for (const pid_t pid : pids) EXPECT_EQ(exit_status(pid), 0);
    pids.clear();
}

TEST_F(Users, GuestsGoOnWhenTheirRelaysAreKilled) {
    board.size = 4;
    start_ring(2);
    ASSERT_TRUE(advances(2, kNext));
    for (int relay = 0; relay < 2; ++relay) {
        ASSERT_EQ(::kill(pids[static_cast<std::size_t>(relay)], SIGKILL), 0);
        // From the second kill on there is no process of root: they hold the port themselves.
        EXPECT_TRUE(advances(2, kNext)) << relay;
        EXPECT_TRUE(advances(3, kBefore)) << relay;
    }
    EXPECT_TRUE(share_any(port_sockets(), sockets_of(pids[2])));
}

// By Ctrl-Z or a debugger: it keeps its connections and its locks.
TEST_F(Users, GuestsGoOnWhenTheirRelayIsStopped) {
    board.size = 4;
    start_ring(2);
    ASSERT_TRUE(advances(2, kNext));
    // Each in turn, so that the guests go from one to the other and back.
    for (const std::size_t relay : {0, 1, 0}) {
        ASSERT_EQ(::kill(pids[relay], SIGSTOP), 0);
        EXPECT_TRUE(advances(2, kNext)) << relay;
        EXPECT_TRUE(advances(3, kBefore)) << relay;
        ASSERT_EQ(::kill(pids[relay], SIGCONT), 0);
        EXPECT_TRUE(advances(2, kNext)) << relay;
    }
    // The second has the locks of their slots by now, which its death sets free.
    ASSERT_EQ(::kill(pids[1], SIGKILL), 0);
    EXPECT_TRUE(advances(2, kNext));
    EXPECT_TRUE(advances(3, kBefore));
}

// Its relay is stopped, and the other one so slow that the guest does not wait for the answer.
int give_up_on_an_answer(pid_t relay) {
    using port::GuestMessage;
    const auto ask = [](port::FormerSeat before) {
        return port::RelaySeat::ask(kPort, 0, before, seconds(30));
    };
    const Result<port::RelaySeat> first = become_ordinary_user() ? ask({}) : Error{EPERM, ""};
    if (!first || first->relay != relay) return 2;
    ::raise(SIGSTOP);  // The test stops the relay now.
    for (int i = 0; i < 2; ++i) {
        const Result<port::Fd> connection = port::connect_to_group(kPort, 0);
        const GuestMessage question{
            .kind = GuestMessage::Kind::Ask, .slot = first->slot, .token = first->token};
        if (!connection || ::send(connection->get(), &question, sizeof question, MSG_NOSIGNAL) < 0)
            return 3;
        pollfd answer{connection->get(), POLLIN, 0};
        if (::poll(&answer, 1, 30'000) != 1) return 4;
    }
    const Result<port::RelaySeat> again = ask({first->slot, first->token});
    if (!again) return 5;
    return again->slot == first->slot && again->relay != relay ? 0 : 6;
}

TEST_F(Users, AGuestThatGaveUpOnAnAnswerGetsItsSlotAllTheSame) {
    board.size = 1;
    start_ring(1);
    const pid_t guest = ::fork();
    if (guest == 0) ::_exit(give_up_on_an_answer(pids[0]));
    pids.push_back(guest);
    int status = 0;
    ASSERT_EQ(::waitpid(guest, &status, WUNTRACED), guest);
    ASSERT_TRUE(WIFSTOPPED(status)) << WEXITSTATUS(status);
    Board& other = Board::make(1);
    pids.push_back(start_member(other, 0));
    ASSERT_TRUE(await(seconds(30), [&] { return other.members[0].open.load(); }));
    ASSERT_EQ(::kill(pids[0], SIGSTOP), 0);
    ASSERT_EQ(::waitpid(pids[0], nullptr, WUNTRACED), pids[0]);
    ASSERT_EQ(::kill(guest, SIGCONT), 0);
    EXPECT_EQ(exit_status(guest), 0);
    std::erase(pids, guest);
}

TEST_F(Users, RootIsNobodysGuestUnlessItWishes) {
    board.size = 1;
    pids.push_back(start_member(board, 0, [] { return become_ordinary_user(); }));
    ASSERT_TRUE(await(seconds(30), [&] { return board.members[0].open.load(); }));
    const auto open = [] { return verbs::open_loopback() != nullptr ? 0 : errno; };
    EXPECT_EQ(in_child(open), EACCES);
    EXPECT_EQ(in_child([&] {
                  ::setenv("FEROCE_SHARE", "any", 1);
                  return open();
              }),
              0);
}

TEST_F(Users, SharingCanBeForbidden) {
    board.size = 1;
    pids.push_back(start_member(board, 0, [] {
        ::setenv("FEROCE_SHARE", "user", 1);
        return true;
    }));
    ASSERT_TRUE(await(seconds(30), [&] { return board.members[0].open.load(); }));
    EXPECT_EQ(in_child([] {
                  if (!become_ordinary_user()) return 1;
                  return verbs::open_loopback() != nullptr ? 0 : errno;
              }),
              EACCES);
}

TEST_F(Users, NothingAUserDoesDivertsOrStarvesRootsPackets) {
    start_ring(2);
    const std::uint32_t target = board.members[1].links[kNext].qpn;
    const auto as_user = [](const std::function<int()>& attack) {
        return in_child([&] { return become_ordinary_user() ? attack() : 99; });
    };
    ASSERT_TRUE(advances(0, kNext));
    EXPECT_EQ(as_user(try_to_bind), 0);
    EXPECT_EQ(in_child(try_to_join), 4) << "it does work for root";
    EXPECT_EQ(as_user(try_to_join), 0);
    EXPECT_EQ(as_user(try_to_sit_on_roots_slots), 0);
    EXPECT_TRUE(advances(0, kNext));
    const pid_t flooder = ::fork();
    if (flooder == 0) {
        if (!become_ordinary_user()) ::_exit(1);
        for (;;) {
            forge_parcels(target);
            flood(target, 2000);
            flood(1, 2000);  // To slot 0, where connection requests land.
            flood_the_door(50);
        }
    }
    pids.push_back(flooder);
    for (std::uint32_t m = 0; m < 2; ++m)
        for (const std::size_t link : {kNext, kBefore}) EXPECT_TRUE(advances(m, link, 20));
    // Newcomers of root get in, and those of others.
    const auto open = [] { return verbs::open_loopback() != nullptr ? 0 : errno; };
    EXPECT_EQ(in_child(open), 0);
    EXPECT_EQ(as_user(open), 0);
    EXPECT_TRUE(advances(0, kNext, 20));
}

// A listener of root on all addresses; a stranger takes the name of the same port on one address,
// which is asked first.
TEST_F(Users, ConnectionRequestsDoNotGoToWhoTookAName) {
    port::KernelRandom random;
    const auto alone = [] { return port::Neighbours{}; };
    auto listener =
        port::UnixRendezvous::open({.network = *port::Network::enter(), .slot = 1}, random, alone);
    auto reader =
        port::UnixRendezvous::open({.network = *port::Network::enter(), .slot = 2}, random, alone);
    ASSERT_TRUE(listener && reader);
    const auto lease = (*listener)->lease(wire::PortSpace::Tcp, Gid::from_v4(0), 7471);
    ASSERT_TRUE(lease);

    const wire::ServiceId service = wire::make_service_id(wire::PortSpace::Tcp, 7471);
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t stranger = ::fork();
    if (stranger == 0) {
        const std::string name = "feroce-cm-0-" + std::to_string(service.raw) + "-127.0.0.1";
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path + 1, name.data(), name.size());
        const int fd = become_ordinary_user() ? ::socket(AF_UNIX, SOCK_SEQPACKET, 0) : -1;
        const auto length =
            static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        const bool taken =
            ::bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 && ::listen(fd, 8) == 0;
        (void)!::write(ready[1], &taken, 1);
        char byte;
        const int connection = ::accept(fd, nullptr, nullptr);
        ::_exit(::recv(connection, &byte, 1, 0) > 0 ? 1 : 0);
    }
    pids.push_back(stranger);
    bool taken = false;
    ASSERT_TRUE(::read(ready[0], &taken, 1) == 1 && taken);

    const host::CmDatagram request{loopback_v4(1), loopback_v4(1),
                                   wire::make_cm_mad(1, wire::CmReq{.service_id = service})};
    EXPECT_TRUE((*reader)->offer(request));
    std::vector<host::CmDatagram> got;
    for (int i = 0; i < 10 && got.empty(); ++i) {
        (*listener)->wait(Instant(Clock::now().time_since_epoch() + seconds(1)));
        (*listener)->drain(got);
    }
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].mad, request.mad);
    EXPECT_EQ(exit_status(stranger), 0);
    pids.clear();
}

}  // namespace
}  // namespace feroce::share
