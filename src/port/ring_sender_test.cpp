// A sender and the moments at which its neighbour may vanish.
#include "port/ring_sender.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/random.hpp"
#include "port/packet_ring.hpp"
#include "port/ring_file.hpp"

namespace feroce::port::ring_sender_test {
namespace {

constexpr SlotNumber kOwn = 1, kPeer = 2;
const Gid kLoopback = Gid::from_v4(0x7f000001);

class RingSenderTest : public testing::Test {
protected:
    void SetUp() override {
        ASSERT_TRUE(table.create());
        ASSERT_TRUE(table.try_lock(kOwn) && table.try_lock(kPeer));
        peers_socket = make_parcel_socket(peers_name);
        table.set_parcel_name(kPeer, peers_name);
        table.set_owner(kOwn, 11, true);
        table.set_owner(kPeer, 13, true);
        run.path = {kLoopback, kLoopback, 0, 64, 0};
        run.bytes = bytes;
        run.segment_size = bytes.size();
        run.packet_count = 1;
        run.destination_slot = kPeer;
    }
    // The peer accepts what was offered last.
    void accept(int bell) { accept(sender, bell); }
    void accept(RingSender& offering, int bell, Fd* memory = nullptr) {
        RingMessage offer;
        iovec piece{&offer, sizeof offer};
        alignas(cmsghdr) std::array<char, 256> control{};
        msghdr header{};
        header.msg_iov = &piece;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        ASSERT_EQ(::recvmsg(peers_socket.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC),
                  static_cast<ssize_t>(sizeof offer));
        int file = -1;  // The sender's credentials come with it.
        for (cmsghdr* one = CMSG_FIRSTHDR(&header); one != nullptr; one = CMSG_NXTHDR(&header, one))
            if (one->cmsg_type == SCM_RIGHTS) std::memcpy(&file, CMSG_DATA(one), sizeof file);
        Fd offered(file);
        if (memory != nullptr) *memory = std::move(offered);
        offering.accepted({.kind = RingMessage::Kind::Acceptance,
                           .from = kPeer,
                           .incarnation = table.incarnation(kPeer),
                           .ring = offer.ring},
                          Fd(bell));
    }

    SlotTable table;
    LocalAddresses addresses;
    Prng random{1};
    Fd own_socket{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    Fd peers_socket;
    sockaddr_un peers_name{};
    RingBudget budget{RingBudget::kDefault};
    RingSender sender{{table, addresses, random, own_socket.get(), true, budget}, kOwn};
    std::array<std::byte, 40> bytes{};
    transport::TransmitRun run;
};

TEST_F(RingSenderTest, ANeighbourThatGoesBetweenTwoRunsOfABatch) {
    EXPECT_EQ(sender.send(run), 0U);
    accept(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    EXPECT_EQ(sender.send(run), 1U);
    table.set_owner(kPeer, 17, true);
    EXPECT_EQ(sender.send(run), 0U);
    sender.publish();
    EXPECT_FALSE(table.door(kPeer).pending.has(kOwn)) << "the next owner has no ring of ours";
}

TEST_F(RingSenderTest, ARingBeginsSmallAndGrows) {
    EXPECT_EQ(sender.send(run), 0U);
    EXPECT_EQ(sender.memory(), kSmallRingSize);
    accept(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    for (std::uint32_t i = 0; i + 1 < detail::kSmallRingSlots; ++i) ASSERT_EQ(sender.send(run), 1U);
    EXPECT_EQ(sender.memory(), kSmallRingSize);
    for (std::uint32_t i = 0; i < 100; ++i) ASSERT_EQ(sender.send(run), 1U);
    EXPECT_EQ(sender.memory(), kRingSize);
    EXPECT_EQ(sender.packets_overflowed(), 0U);
    EXPECT_EQ(budget.used(), kRingSize);
}

TEST_F(RingSenderTest, WhatTheBudgetRefusesGoesByUdp) {
    constexpr SlotNumber kSecond = 3;
    ASSERT_TRUE(table.try_lock(kSecond));
    table.set_parcel_name(kSecond, peers_name);
    table.set_owner(kSecond, 19, true);
    RingBudget little{kSmallRingSize + 1};
    {
        RingSender poor{{table, addresses, random, own_socket.get(), true, little}, kOwn};
        EXPECT_EQ(poor.send(run), 0U);
        accept(poor, ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
        std::uint32_t sent = 0;
        while (poor.send(run) == 1) ++sent;
        EXPECT_EQ(sent, detail::kSmallRingSlots - 1) << "it may not grow";
        EXPECT_EQ(poor.packets_overflowed(), 1U);
        EXPECT_FALSE(poor.has_room(run.path, kPeer, kRingPacketMax));

        run.destination_slot = kSecond;
        EXPECT_EQ(poor.send(run), 0U);
        EXPECT_EQ(poor.refused(), 1U);
        EXPECT_EQ(poor.memory(), kSmallRingSize);
        // The first one ends, and there is room for the second after a while.
        table.set_owner(kPeer, 0, false);
        poor.forget_departed();
        EXPECT_EQ(poor.memory(), 0U);
        for (int i = 0; i < 1000 && poor.memory() == 0; ++i) EXPECT_EQ(poor.send(run), 0U);
        EXPECT_EQ(poor.memory(), kSmallRingSize);
        EXPECT_EQ(little.used(), kSmallRingSize);
    }
    EXPECT_EQ(little.used(), 0U);
    table.unlock(kSecond);
}

// Its packets would overtake those of the run that went by UDP.
TEST_F(RingSenderTest, ASmallRingThatMayNotGrowTakesARunOrNothing) {
    RingBudget little{kSmallRingSize};
    RingSender poor{{table, addresses, random, own_socket.get(), true, little}, kOwn};
    EXPECT_EQ(poor.send(run), 0U);
    accept(poor, ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    EXPECT_EQ(poor.send(run), 1U);
    std::array<std::byte, detail::kSmallRingSlots * 1024> many{};
    transport::TransmitRun large = run;
    large.bytes = many;
    large.segment_size = 1024;
    large.packet_count = detail::kSmallRingSlots;
    EXPECT_EQ(poor.send(large), 0U);
    EXPECT_EQ(poor.packets_overflowed(), large.packet_count);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(poor.send(run), 0U) << "UDP has the rest, too";
}

// Where no ring leads there is nobody to find it: no reason to send it at once.
TEST_F(RingSenderTest, AnAcknowledgementIsLeftBehindForANeighbourWithARing) {
    const std::array<std::byte, transport::kAckSize> ack{};
    EXPECT_EQ(sender.send(run), 0U);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(sender.leave_behind(run.path, kPeer, ack));
    accept(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    for (std::uint32_t i = 0; i < detail::kRingLegacies; ++i)
        EXPECT_TRUE(sender.leave_behind(run.path, kPeer, ack));
    EXPECT_FALSE(sender.leave_behind(run.path, kPeer, ack)) << "it is full";
    EXPECT_FALSE(table.door(kPeer).pending.has(kOwn)) << "nobody is told";
    sender.take_legacies_back();
    EXPECT_TRUE(sender.leave_behind(run.path, kPeer, ack));
    table.set_owner(kPeer, 17, true);
    EXPECT_TRUE(sender.leave_behind(run.path, kPeer, ack)) << "another one by now";
    sender.forget_departed();
    sender.take_legacies_back();
}

// Of two queue pairs that send to one neighbour from two addresses.
TEST_F(RingSenderTest, APacketHasItsOwnPathWhenAnotherWasLeftBehind) {
    EXPECT_EQ(sender.send(run), 0U);
    Fd memory;
    accept(sender, ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), &memory);
    RingFile file;
    ASSERT_TRUE(file.map(std::move(memory)));
    RingReader reader(file.memory());
    transport::Path other = run.path;
    other.source = other.destination = Gid::from_v4(0x7f000002);
    const std::array<std::byte, transport::kAckSize> ack{};
    ASSERT_TRUE(sender.has_room(run.path, kPeer, 20));
    sender.place(kPeer, 20, 1);
    EXPECT_TRUE(sender.leave_behind(other, kPeer, ack));
    ASSERT_TRUE(sender.has_room(other, kPeer, 20));
    sender.place(kPeer, 20, 1);
    sender.publish();
    EXPECT_EQ(reader.next()->path.source, run.path.source);
    EXPECT_EQ(reader.next()->path.source, other.source);
}

TEST_F(RingSenderTest, APacketIsBuiltWhereItIsRead) {
    EXPECT_FALSE(sender.has_room(run.path, kPeer, 8192)) << "there is no ring";
    accept(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    ASSERT_TRUE(sender.has_room(run.path, kPeer, 8192));
    EXPECT_EQ(sender.place(kPeer, 8192, 2).size(), 8192U);
    sender.take_back();
    EXPECT_EQ(sender.packets_sent(), 0U);
    EXPECT_EQ(sender.place(kPeer, 4096, 1).size(), 4096U);
    sender.publish();
    EXPECT_TRUE(table.door(kPeer).pending.has(kOwn));
    EXPECT_EQ(sender.packets_sent(), 1U);
}

// A packet that was not built after all leaves nothing to be told of.
TEST_F(RingSenderTest, ANeighbourThatGoesBeforeItsPacketIsBuilt) {
    EXPECT_EQ(sender.send(run), 0U);
    accept(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    ASSERT_TRUE(sender.has_room(run.path, kPeer, 8192));
    table.set_owner(kPeer, 0, false);
    sender.forget_departed();
    EXPECT_FALSE(sender.has_room(run.path, kPeer, 8192));
}

TEST_F(RingSenderTest, TheReaderIsToldOfLittleAtOnceAndOfMuchBeforeMoreIsBuilt) {
    EXPECT_FALSE(sender.has_room(run.path, kPeer, 4096)) << "there is no ring";
    accept(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    for (int i = 0; i < 40; ++i) {
        ASSERT_TRUE(sender.has_room(run.path, kPeer, 4096));
        sender.place(kPeer, 4096, 1);
    }
    EXPECT_FALSE(table.door(kPeer).pending.has(kOwn));
    ASSERT_TRUE(sender.has_room(run.path, kPeer, kRingPacketMax));
    sender.place(kPeer, kRingPacketMax, 32);
    EXPECT_TRUE(table.door(kPeer).pending.has(kOwn));
    sender.take_back();
    EXPECT_EQ(sender.packets_sent(), 40U);
}

// Its slot may stay free for long: nobody else says that it is gone.
TEST_F(RingSenderTest, TheRingOfANeighbourThatWasKilledIsGivenBack) {
    table.unlock(kPeer);
    std::array<int, 2> ready{};
    ASSERT_EQ(::pipe(ready.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        if (!table.try_lock(kPeer)) ::_exit(1);
        table.set_parcel_name(kPeer, peers_name);
        table.set_owner(kPeer, 13, true);
        (void)!::write(ready[1], "", 1);
        ::pause();
        ::_exit(0);
    }
    ::close(ready[1]);
    char told;
    ASSERT_EQ(::read(ready[0], &told, 1), 1);
    ::close(ready[0]);
    EXPECT_EQ(sender.send(run), 0U);
    accept(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    sender.forget_departed();
    EXPECT_EQ(sender.send(run), 1U) << "it lives";
    sender.publish();
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    sender.forget_departed();
    EXPECT_EQ(sender.send(run), 0U);
}

TEST_F(RingSenderTest, ALateWriterDoesNotDisarmTheNextOwner) {
    EXPECT_EQ(sender.send(run), 0U);
    accept(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    EXPECT_EQ(sender.send(run), 1U);
    table.set_owner(kPeer, 17, true);
    table.door(kPeer).armed.store(SlotTable::tag_of(17));
    sender.publish();
    EXPECT_EQ(table.door(kPeer).armed.load(), SlotTable::tag_of(17));
}

// It may be stopped before it rings, and another writer must not think that it has.
TEST_F(RingSenderTest, AWriterLeavesTheDoorArmed) {
    const Fd bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    EXPECT_EQ(sender.send(run), 0U);
    accept(::dup(bell.get()));
    table.door(kPeer).armed.store(SlotTable::tag_of(13));
    EXPECT_EQ(sender.send(run), 1U);
    sender.publish();
    std::uint64_t rings = 0;
    EXPECT_EQ(::read(bell.get(), &rings, sizeof rings), static_cast<ssize_t>(sizeof rings));
    EXPECT_EQ(rings, 1U);
    EXPECT_EQ(table.door(kPeer).armed.load(), SlotTable::tag_of(13));
}

TEST_F(RingSenderTest, OnlyAnEventfdThatDoesNotBlockIsABell) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe2(pipe.data(), O_NONBLOCK), 0);
    ::close(pipe[0]);
    EXPECT_EQ(sender.send(run), 0U);
    accept(pipe[1]);
    EXPECT_EQ(sender.send(run), 0U);
    // It asks again after a while.
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(sender.send(run), 0U);
    accept(::eventfd(0, EFD_CLOEXEC));
    EXPECT_EQ(sender.send(run), 0U);
}

}  // namespace
}  // namespace feroce::port::ring_sender_test
