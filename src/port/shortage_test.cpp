// What becomes of slots, seats and guests when an allocation fails in the middle.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "base/random.hpp"
#include "port/clock.hpp"
#include "port/guest_port.hpp"
#include "port/port_entry.hpp"
#include "port/relay_server.hpp"

namespace feroce::port::shortage {
namespace {

// Of the chosen kind of threads, the allocation after so many more fails. Negative: none does.
constinit std::atomic<long> until_failure{-1};
constinit thread_local bool is_tests = false;
constinit std::atomic<bool> fails_tests{false};

bool allocation_fails() {
    if (until_failure.load(std::memory_order_relaxed) < 0 ||
        is_tests != fails_tests.load(std::memory_order_relaxed))
        return false;
    return until_failure.fetch_sub(1, std::memory_order_relaxed) == 0;
}

}  // namespace
}  // namespace feroce::port::shortage

// For all of this test program. Not inline: compilers would see new and free() mixed.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    void* block = feroce::port::shortage::allocation_fails() ? nullptr : std::malloc(bytes);
    if (block == nullptr) throw std::bad_alloc();
    return block;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return feroce::port::shortage::allocation_fails() ? nullptr : std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* block) noexcept {
    std::free(block);
}
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept {
    std::free(block);
}

namespace feroce::port::shortage {
namespace {

using namespace std::chrono_literals;

class Shortage {
public:
    enum class Of : std::uint8_t { Test, Others };
    Shortage(Of of, long after) {
        is_tests = true;
        fails_tests = of == Of::Test;
        until_failure = after;
    }
    ~Shortage() { until_failure = -1; }
    bool over() const { return until_failure < 0; }  // One has failed.
};

std::uint16_t port_number(long turn = 0) {
    return static_cast<std::uint16_t>(20000 + ::getpid() % 20000 + turn);
}

std::shared_ptr<PortGroup> found_group(long turn = 0) {
    Result<PortEntry> entry =
        enter_port(port_number(turn), capture_identity(Sharing::Default), {}, 500ms);
    return entry ? std::move(entry->group) : nullptr;
}

// Whether another process could have the slot.
bool is_free(SlotTable& table, std::uint32_t slot) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(table.try_lock(slot) ? 0 : 1);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Shortage, ASlotThatCouldNotBeClaimedIsFree) {
    const std::shared_ptr<PortGroup> group = found_group();
    ASSERT_NE(group, nullptr);
    group->table().set_bonds(1, 3);  // The last owner has left something.
    {
        const Shortage shortage(Shortage::Of::Test, 0);
        EXPECT_THROW((void)group->claim(), std::bad_alloc);
    }
    EXPECT_TRUE(is_free(group->table(), 1));
    EXPECT_EQ(group->claim().value(), 1);
}

TEST(Shortage, AnEstateThatCouldNotBeTakenIsTakenLater) {
    SlotTable table;
    ASSERT_TRUE(table.create());
    const cm::Bond bond{.local_id = {5u << kCommIdLowBits | 1},
                        .remote_id = {0x0700'0001},
                        .remote_qpn = {0x07'0000},
                        .local = Gid::from_v4(0x7f00'0001),
                        .remote = Gid::from_v4(0x7f00'0002)};
    const pid_t owner = ::fork();
    if (owner == 0) {
        Estates own(table);
        const std::unique_ptr<host::Estate> estate = own.open(5, {});
        if (!table.try_lock(5) || estate == nullptr) ::_exit(1);
        estate->keep(bond);
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(owner, &status, 0), owner);
    ASSERT_EQ(status, 0);
    Estates estates(table);
    std::vector<cm::Bond> out;
    out.reserve(10);
    for (long failing = 0; failing < 2; ++failing) {
        const Shortage shortage(Shortage::Of::Test, failing);
        EXPECT_THROW(estates.inherit({}, out), std::bad_alloc) << failing;
        EXPECT_TRUE(out.empty());
    }
    EXPECT_TRUE(is_free(table, 5));
    EXPECT_TRUE(estates.waiting({}));
    estates.inherit({}, out);
    EXPECT_EQ(out, std::vector{bond});
}

bool becomes_readable(int fd) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, 20'000) == 1;
}

void send_to_slot(std::uint16_t port, std::uint32_t slot) {
    std::array<std::byte, 64> bytes{};
    const Qpn destination = qpn_of(static_cast<SlotNumber>(slot), 0);
    bytes[5] = static_cast<std::byte>(destination.raw >> 16);
    bytes[6] = static_cast<std::byte>(destination.raw >> 8);
    const Fd fd(::socket(AF_INET, SOCK_DGRAM, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::sendto(fd.get(), bytes.data(), bytes.size(), 0,
                       reinterpret_cast<const sockaddr*>(&to), sizeof to),
              static_cast<ssize_t>(bytes.size()));
}

// With one allocation of the relay's thread failing. False if it needed fewer.
bool ask_a_relay(long failing) {
    const std::shared_ptr<PortGroup> group = found_group(failing);
    EXPECT_NE(group, nullptr);
    Prng random(11);
    group->share_with_others(random, [] {});
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    Fd own(pair[0]);
    const Shortage shortage(Shortage::Of::Others, failing);
    group->admit_guest(Fd(pair[1]), ::geteuid() + 1);
    const GuestMessage question{.kind = GuestMessage::Kind::Ask};
    (void)!::send(own.get(), &question, sizeof question, MSG_NOSIGNAL);
    EXPECT_TRUE(becomes_readable(own.get())) << failing << ": neither a seat nor a refusal";
    GuestMessage answer;
    const ssize_t n = ::recv(own.get(), &answer, sizeof answer, MSG_DONTWAIT);
    if (n != sizeof answer || answer.refusal != 0) return true;  // It may ask again.
    send_to_slot(port_number(failing), answer.slot);
    EXPECT_TRUE(becomes_readable(own.get())) << failing << ": the guest is deaf";
    return shortage.over();
}

TEST(Shortage, AGuestIsSeatedAndHearsOrIsRefused) {
    long failing = 0;
    while (failing < 100 && ask_a_relay(failing)) ++failing;
    EXPECT_GT(failing, 2) << "the relay takes memory for a seat";
    EXPECT_LT(failing, 100);
}

class NoEvents final : public device::EventListener {
public:
    void on_qp_event(transport::QueuePair&, transport::AsyncEventType) override {}
    void on_srq_event(transport::ReceiveQueue&, transport::AsyncEventType) override {}
};

// The thread that waits has nobody to tell.
TEST(Shortage, AGuestWithoutMemoryForAnotherSeatAsksAgain) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    RelaySeat seat;
    seat.connection = Fd(pair[0]);
    seat.slot = 61;
    Fd relay(pair[1]);
    Prng random(11);
    int asked = 0;
    Result<std::unique_ptr<host::HostPort>> opened = GuestPort::open(
        std::move(seat),
        {*Network::enter(), random, port_number(), {}, [&asked](FormerSeat) -> Result<PortEntry> {
             ++asked;
             throw std::bad_alloc();
         }});
    ASSERT_TRUE(opened.has_value());
    host::HostPort& port = **opened;
    NoEvents events;
    mem::Memory memory{mem::Limits{}, random};
    device::XrcDomains xrc;
    device::Engine::Config config;
    config.slot = 61;
    device::Engine engine(config, {memory, xrc, port, events, random});
    relay.reset();
    ASSERT_TRUE(becomes_readable(pair[0]));
    (void)port.poll(monotonic_now(), engine);
    for (int i = 0; i < 3; ++i) EXPECT_NO_THROW((void)port.wait(monotonic_now()));
    EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace feroce::port::shortage
