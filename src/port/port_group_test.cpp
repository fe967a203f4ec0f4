// Processes that share the port: real sockets on loopback, on a port number of the test's own.
#include "port/port_group.hpp"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "port/clock.hpp"
#include "port/group_socket.hpp"
#include "port/port_entry.hpp"
#include "port/port_waiter.hpp"
#include "port/real_host.hpp"
#include "port/sharing_errors.hpp"

namespace feroce::port {
namespace {

std::uint16_t test_port() {
    static const auto port = static_cast<std::uint16_t>(20000 + ::getpid() % 20000);
    return port;  // The same in a forked child.
}

Result<std::shared_ptr<PortGroup>> enter() {
    Result<PortEntry> entry = enter_port(test_port(), capture_identity(Sharing::Default), {},
                                         std::chrono::milliseconds(500));
    if (!entry) return entry.error();
    return std::move(entry->group);
}

// A datagram as the filter sees it: only the destination QPN matters.
void send_to_qpn(std::uint16_t port, std::uint32_t qpn) {
    std::array<unsigned char, 16> bytes{};
    bytes[5] = static_cast<unsigned char>(qpn >> 16);
    bytes[6] = static_cast<unsigned char>(qpn >> 8);
    bytes[7] = static_cast<unsigned char>(qpn);
    const Fd fd(::socket(AF_INET, SOCK_DGRAM, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::sendto(fd.get(), bytes.data(), bytes.size(), 0,
                       reinterpret_cast<const sockaddr*>(&to), sizeof to),
              static_cast<ssize_t>(bytes.size()));
}

bool readable(int fd) {
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, 0) == 1;
}

// Serves newcomers until destroyed.
class Server {
public:
    explicit Server(PortGroup& group) : group_(group) {
        thread_ = std::thread([this] {
            while (!stop_) {
                pollfd p{group_.listener(), POLLIN, 0};
                if (::poll(&p, 1, 10) == 1) group_.serve();
            }
        });
    }
    ~Server() {
        stop_ = true;
        thread_.join();
    }

private:
    PortGroup& group_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

TEST(PortGroup, SlotsOfOneProcessDiffer) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value()) << group.error().why;
    const auto first = (*group)->claim();
    const auto second = (*group)->claim();
    ASSERT_TRUE(first && second);
    EXPECT_NE(*first, *second);
    EXPECT_NE(*first, 0);
    (*group)->release(*first);
    EXPECT_EQ((*group)->claim().value(), *first);
}

// The readable ones of all sockets that the group has, emptied.
std::vector<SlotNumber> readable_slots(PortGroup& group) {
    std::vector<SlotNumber> out;
    char byte;
    for (SlotNumber slot = 0; slot < group.table().slots(); ++slot)
        while (::recv(group.socket_v4(slot), &byte, 1, MSG_DONTWAIT) >= 0) out.push_back(slot);
    return out;
}

void open_all_sockets(PortGroup& group) {
    for (SlotNumber slot = 0; slot < group.table().slots(); ++slot)
        ASSERT_TRUE(group.open_sockets(slot)) << slot;
}

std::size_t open_descriptors() {
    const auto all = std::filesystem::directory_iterator("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(PortGroup, SteersByTheSlotInTheQpn) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value()) << group.error().why;
    while ((*group)->grow()) continue;
    ASSERT_EQ((*group)->table().slots(), kSlots);
    open_all_sockets(**group);
    for (SlotNumber slot = 0; slot < kSlots; ++slot) {
        send_to_qpn(test_port(), qpn_of(slot, 0x1234).raw);
        EXPECT_EQ(readable_slots(**group), std::vector{slot});
    }
}

TEST(PortGroup, GivesAllSlotsAndThenSaysSo) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value()) << group.error().why;
    SlotSet claimed;
    for (std::uint32_t i = 0; i < kMemberSlots; ++i) {
        const Result<SlotNumber> slot = (*group)->claim();
        ASSERT_TRUE(slot.has_value()) << i << ": " << slot.error().why;
        EXPECT_TRUE(is_member_slot(*slot) && !claimed.has(*slot)) << *slot;
        claimed.add(*slot);
    }
    ASSERT_FALSE((*group)->claim().has_value());
    EXPECT_EQ((*group)->claim().error().code, EUSERS);
}

TEST(PortGroup, AMemberHasFewDescriptors) {
    const std::size_t before = open_descriptors();
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value()) << group.error().why;
    while ((*group)->grow()) continue;
    ASSERT_TRUE((*group)->claim().has_value());
    EXPECT_LE(open_descriptors() - before, 32u);
}

// Lower for a while, without the privilege to exceed it.
class FewOpenFiles {
public:
    explicit FewOpenFiles(rlim_t limit) {
        EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
        EXPECT_EQ(::syscall(SYS_capget, &header_, before_effective_.data()), 0);
        set({limit, before_.rlim_max}, 0);
    }
    ~FewOpenFiles() { set(before_, ~0u); }

private:
    void set(const rlimit& limit, std::uint32_t kept) {
        std::array<__user_cap_data_struct, 2> data = before_effective_;
        for (__user_cap_data_struct& word : data) word.effective &= kept;
        EXPECT_EQ(::syscall(SYS_capset, &header_, data.data()), 0);
        EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    }

    rlimit before_{};
    __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, 2> before_effective_{};
};

// Joins in another process; empty if it could, else why not.
std::string join_from_another_process() {
    int pipe_fds[2];
    EXPECT_EQ(::pipe(pipe_fds), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const Result<std::shared_ptr<PortGroup>> own = enter();
        const std::string why = own ? "" : own.error().why;
        (void)!::write(pipe_fds[1], why.data(), why.size());
        ::_exit(0);
    }
    ::close(pipe_fds[1]);
    std::array<char, 1024> text;
    const ssize_t n = ::read(pipe_fds[0], text.data(), text.size());
    ::close(pipe_fds[0]);
    ::waitpid(child, nullptr, 0);
    return n > 0 ? std::string(text.data(), static_cast<std::size_t>(n)) : std::string();
}

TEST(PortGroup, AMemberThatMayPassNoDescriptorsOnSaysSo) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value()) << group.error().why;
    while ((*group)->grow()) continue;
    ASSERT_EQ((*group)->table().chunks(), kChunks);
    {
        const FewOpenFiles few(2 * kSlots - 100);  // All of their sockets are in flight.
        const Server server(**group);
        const std::string why = join_from_another_process();
        EXPECT_NE(why.find("ulimit -n"), std::string::npos) << why;
    }
    const Server server(**group);
    EXPECT_EQ(join_from_another_process(), "");
}

// A newcomer, whom nobody has served yet.
Fd knock() {
    Result<Fd> connection = connect_to_group(test_port(), ::geteuid());
    EXPECT_TRUE(connection.has_value());
    return connection ? std::move(*connection) : Fd();
}

TEST(PortGroup, AMemberThatMayPassNoDescriptorsOnLeavesNewcomersToOthers) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value()) << group.error().why;
    while ((*group)->grow()) continue;
    PortWaiter poor;
    ASSERT_TRUE(poor.open() && poor.add_listener((*group)->listener()));
    const Instant soon = monotonic_now() + std::chrono::seconds(20);
    const Fd first = knock();
    ASSERT_TRUE(poor.wait(soon).newcomer);
    {
        const FewOpenFiles few(2 * kSlots - 100);
        poor.serve(**group);
    }
    const Fd second = knock();
    EXPECT_FALSE(poor.wait(monotonic_now()).newcomer);
    bool served = false;  // Later: there may be nobody else.
    while (!served && monotonic_now() < soon) served = poor.wait(soon).newcomer;
    EXPECT_TRUE(served);
}

// Else the thread that waits would find it again and again.
TEST(PortGroup, AMemberWithoutADescriptorLeavesNewcomersToOthers) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value()) << group.error().why;
    const Fd newcomer = knock();
    {
        const FewOpenFiles few(static_cast<rlim_t>(newcomer.get()) + 1);
        std::vector<Fd> rest;  // Below the limit.
        for (Fd fd(::dup(0)); fd.valid(); fd = Fd(::dup(0))) rest.push_back(std::move(fd));
        EXPECT_FALSE((*group)->serve());
    }
    EXPECT_TRUE((*group)->serve());
}

RealHost::Options on_test_port() {
    RealHost::Options out;
    out.port = test_port();
    return out;
}

// As guests make it grow: slots that nobody has leave the program's shards alone.
TEST(PortGroup, SlotsThatOnlyWereAddedAreToSpare) {
    RealHost host(on_test_port());
    const Result<std::unique_ptr<host::HostPort>> port = host.open_port();
    ASSERT_TRUE(port.has_value()) << port.error().why;
    const pid_t child = ::fork();
    if (child == 0) {
        Result<std::shared_ptr<PortGroup>> own = enter();
        while (own && (*own)->grow()) continue;
        ::_exit(own && (*own)->table().chunks() == kChunks ? 0 : 1);
    }
    const Instant give_up = monotonic_now() + std::chrono::seconds(60);
    int status = -1;
    while (::waitpid(child, &status, WNOHANG) == 0 && monotonic_now() < give_up)
        (*port)->wait(monotonic_now() + std::chrono::milliseconds(10));
    ASSERT_EQ(status, 0);
    EXPECT_TRUE(host.has_ports_to_spare());
}

TEST(PortGroup, HalfOfTheMembersSlotsAreToSpare) {
    RealHost host(on_test_port());
    std::vector<std::unique_ptr<host::HostPort>> ports;
    for (std::uint32_t i = 0; i < kMemberSlots / 2; ++i) {
        ASSERT_TRUE(i == 0 || host.has_ports_to_spare()) << i;
        Result<std::unique_ptr<host::HostPort>> port = host.open_port();
        ASSERT_TRUE(port.has_value()) << port.error().why;
        ports.push_back(std::move(*port));
    }
    EXPECT_FALSE(host.has_ports_to_spare());
    ports.pop_back();
    EXPECT_TRUE(host.has_ports_to_spare());
}

// Another program of this user can bind the port, too, and gets a place in the group.
TEST(PortGroup, DoesNotGrowBesideAForeignSocket) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value()) << group.error().why;
    {
        const Fd foreign = make_group_socket(AF_INET);
        ASSERT_TRUE(bind_group_socket(foreign.get(), AF_INET, test_port()));
        const Result<void> grown = (*group)->grow();
        ASSERT_FALSE(grown.has_value());
        EXPECT_EQ(grown.error().code, EAGAIN);
        EXPECT_NE(std::string(grown.error().why).find("ss -ulp"), std::string::npos);
        EXPECT_EQ((*group)->table().chunks(), 1u);
    }
    EXPECT_TRUE((*group)->grow().has_value());
    open_all_sockets(**group);
    send_to_qpn(test_port(), qpn_of(2 * kChunkSlots - 1, 5).raw);
    EXPECT_EQ(readable_slots(**group), std::vector<SlotNumber>{2 * kChunkSlots - 1});
}

TEST(PortGroup, DoesNotGrowWithTooFewDescriptors) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value()) << group.error().why;
    {
        const FewOpenFiles few(open_descriptors() + kChunkSlots);
        const Result<void> grown = (*group)->grow();
        ASSERT_FALSE(grown.has_value());
        EXPECT_EQ(grown.error().code, EMFILE);
        EXPECT_NE(std::string(grown.error().why).find("ulimit -n"), std::string::npos);
    }
    EXPECT_TRUE((*group)->grow().has_value());
}

// One sentence each: what failed, why, and what to do.
TEST(PortGroup, ItsErrorsSayWhatToDo) {
    for (const Error& error : {kTooFewFds, kAllTaken, kUnsteered, kOthers, kGrowing, kNoTable,
                               kSilent, kNothingCame, kMayNotPassOn, kCannotSteer, kOtherVersion,
                               kNameTaken, no_unix_socket(EACCES), no_unix_socket(ENFILE)}) {
        const std::string why = error.why;
        EXPECT_NE(why.find("UDP port 4791"), std::string::npos) << why;
        EXPECT_NE(why.find(", because "), std::string::npos) << why;
        EXPECT_NE(why.find(": ", why.find(", because ")), std::string::npos) << why;
        EXPECT_EQ(why.find(". "), std::string::npos) << why;
        EXPECT_NE(error.code, 0) << why;
    }
}

// What a process leaves that dies between parking a chunk and counting it.
TEST(PortGroup, CountsAChunkThatADeadProcessHasParked) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value()) << group.error().why;
    ASSERT_TRUE((*group)->grow().has_value());
    (*group)->table().set_chunks(1);
    ASSERT_TRUE((*group)->grow().has_value());
    EXPECT_EQ((*group)->table().chunks(), 2u);
    open_all_sockets(**group);
    send_to_qpn(test_port(), qpn_of(kChunkSlots, 5).raw);
    EXPECT_EQ(readable_slots(**group), std::vector<SlotNumber>{kChunkSlots});
}

TEST(PortGroup, ClaimDrainsWhatTheLastOwnerLeft) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value());
    send_to_qpn(test_port(), qpn_of(1, 0).raw);
    ASSERT_TRUE((*group)->open_sockets(1));
    ASSERT_TRUE(readable((*group)->socket_v4(1)));
    EXPECT_EQ((*group)->claim().value(), 1);
    EXPECT_FALSE(readable((*group)->socket_v4(1)));
}

TEST(PortGroup, AKilledMemberFreesItsSlotAndLeavesTheOthersAlone) {
    Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_TRUE(group.has_value());
    ASSERT_EQ((*group)->claim().value(), 1);
    int pipe_fds[2];
    ASSERT_EQ(::pipe(pipe_fds), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        // The fork inherited the parent's group; a member of its own comes in by the front door.
        Result<std::shared_ptr<PortGroup>> own = enter();
        const char slot = own ? static_cast<char>((*own)->claim().value()) : 0;
        (void)!::write(pipe_fds[1], &slot, 1);
        ::pause();
    }
    char slot = 0;
    {
        const Server server(**group);
        ASSERT_EQ(::read(pipe_fds[0], &slot, 1), 1);
    }
    EXPECT_EQ(slot, 2);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ((*group)->claim().value(), 2);
    send_to_qpn(test_port(), qpn_of(1, 5).raw);
    EXPECT_TRUE(readable((*group)->socket_v4(1)));
    ::close(pipe_fds[0]);
    ::close(pipe_fds[1]);
}

// Of the version before slots were parked: a header, and 130 descriptors.
TEST(PortGroup, AnotherVersionIsToldFromWantOfDescriptors) {
    constexpr std::size_t kOlderFds = 130;
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const int n = std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "feroce/udp/%u/%u",
                                unsigned{test_port()}, unsigned{::geteuid()});
    const auto length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(n));
    const Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), length), 0);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    const std::size_t before = open_descriptors();
    std::thread older([&] {
        const Fd newcomer(::accept(listener.get(), nullptr, nullptr));
        std::array<std::uint32_t, 3> header{0xfe0c'e005, 64, 1};
        iovec vec{header.data(), sizeof header};
        alignas(cmsghdr) char control[CMSG_SPACE(kOlderFds * sizeof(int))] = {};
        msghdr message{};
        message.msg_iov = &vec;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(kOlderFds * sizeof(int));
        std::array<int, kOlderFds> fds;
        fds.fill(listener.get());
        std::memcpy(CMSG_DATA(rights), fds.data(), sizeof fds);
        EXPECT_EQ(::sendmsg(newcomer.get(), &message, MSG_NOSIGNAL),
                  static_cast<ssize_t>(sizeof header));
    });
    const Result<std::shared_ptr<PortGroup>> group = enter();
    older.join();
    ASSERT_FALSE(group.has_value());
    EXPECT_EQ(group.error().code, EPROTO) << group.error().why;
    EXPECT_EQ(open_descriptors(), before);
}

TEST(PortGroup, AForeignOwnerOfThePortIsNamed) {
    const Fd other(::socket(AF_INET, SOCK_DGRAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(test_port());
    ASSERT_EQ(::bind(other.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const Result<std::shared_ptr<PortGroup>> group = enter();
    ASSERT_FALSE(group.has_value());
    EXPECT_EQ(group.error().code, EADDRINUSE);
}

}  // namespace
}  // namespace feroce::port
