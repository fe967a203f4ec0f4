// Ties between members of a table: other processes own its slots, and their sockets are the test's.
#include "port/ties.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <optional>

#include "port/parcel.hpp"

namespace feroce::port::ties_test {
namespace {

constexpr SlotNumber kOwn = 20;

// What a member was sent: the message and the end of a tie.
struct Received {
    RingMessage message;
    Fd end;
};

std::optional<Received> receive(int socket) {
    Received out;
    iovec vec{&out.message, sizeof out.message};
    // Also for the sender's credentials.
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))] = {};
    msghdr header{};
    header.msg_iov = &vec;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    if (::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != sizeof out.message)
        return std::nullopt;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
        if (c->cmsg_type != SCM_RIGHTS) continue;
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
        out.end = Fd(fd);
    }
    return out;
}

bool is_readable(int fd) {
    pollfd polled{fd, POLLIN, 0};
    return ::poll(&polled, 1, 0) == 1;
}

class TiesTest : public testing::Test {
protected:
    struct Member {
        pid_t pid = 0;
        Fd socket;
    };

    void SetUp() override {
        ASSERT_TRUE(table.create());
        table.set_chunks(2);
        own(kOwn);
        ASSERT_TRUE(ties.open());
    }
    void TearDown() override {
        for (auto& [slot, member] : members) end(member);
    }
    static void end(Member& member) {
        if (member.pid == 0) return;
        ::kill(member.pid, SIGKILL);
        ::waitpid(member.pid, nullptr, 0);
        member.pid = 0;
        member.socket.reset();
    }
    void enter(std::uint32_t slot, Member& member) {
        sockaddr_un name{};
        member.socket = make_parcel_socket(name);
        ASSERT_TRUE(member.socket.valid());
        table.set_parcel_name(slot, name);
        table.set_takes_ties(slot, true);
        table.set_owner(slot, 100 + slot, true);
    }
    void own(std::uint32_t slot) {  // By this process.
        ASSERT_TRUE(table.try_lock(slot));
        enter(slot, members[slot]);
    }
    void start(std::uint32_t slot) {  // By another one.
        int ready[2];
        ASSERT_EQ(::pipe(ready), 0);
        Member& member = members[slot];
        member.pid = ::fork();
        if (member.pid == 0) {
            const bool locked = table.try_lock(slot) && ::write(ready[1], "", 1) == 1;
            while (locked) ::pause();
            ::_exit(1);
        }
        ::close(ready[1]);
        char byte;
        ASSERT_EQ(::read(ready[0], &byte, 1), 1);
        ::close(ready[0]);
        enter(slot, member);
    }
    std::optional<Received> receive_at(std::uint32_t slot) {
        return receive(members[slot].socket.get());
    }

    SlotTable table;
    ForkGate gate;
    std::map<std::uint32_t, Member> members;
    Fd sender{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    Ties ties{table, sender.get(), kOwn, gate};
};

TEST_F(TiesTest, OneThatEndsIsNoticedAndNotTiedAgainAtOnce) {
    start(22);
    EXPECT_TRUE(ties.renew(true));
    std::optional<Received> got = receive_at(22);
    ASSERT_TRUE(got && got->end.valid());
    EXPECT_EQ(got->message.kind, RingMessage::Kind::Tie);
    EXPECT_EQ(got->message.from, kOwn);
    EXPECT_FALSE(is_readable(ties.fd()));
    EXPECT_FALSE(ties.take_ended());
    EXPECT_EQ(ties.count(), 1U);

    got.reset();
    EXPECT_TRUE(is_readable(ties.fd()));
    EXPECT_TRUE(ties.take_ended());
    EXPECT_FALSE(is_readable(ties.fd()));
    // It still owns its slot, as one that has begun to close its descriptors.
    EXPECT_FALSE(ties.renew(true));
    EXPECT_FALSE(receive_at(22));
    EXPECT_TRUE(ties.renew(true));
    EXPECT_TRUE(receive_at(22));
}

TEST_F(TiesTest, TheNearestThatLiveOnEachSide) {
    for (const std::uint32_t slot : {3, 5, 17, 18, 21, 22, 23}) start(slot);
    table.set_takes_ties(19, true);
    table.set_owner(19, 119, true);  // Of one that is dead.
    EXPECT_TRUE(ties.renew(true));
    std::map<std::uint32_t, Received> got;
    for (const std::uint32_t slot : {3, 5, 17, 18, 21, 22, 23})
        if (auto received = receive_at(slot)) got[slot] = std::move(*received);
    EXPECT_TRUE(got.size() == 4 && got.contains(17) && got.contains(18) && got.contains(21) &&
                got.contains(22));

    got.erase(18);
    end(members[18]);
    EXPECT_TRUE(ties.take_ended());
    EXPECT_TRUE(ties.renew(true));
    EXPECT_TRUE(receive_at(5));
    EXPECT_FALSE(receive_at(17)) << "it has one already";
}

TEST_F(TiesTest, WithoutARingOnlyTheWatcherIsTiedToItsNearest) {
    start(22);
    EXPECT_TRUE(ties.renew(false));
    EXPECT_FALSE(receive_at(22));
    EXPECT_TRUE(ties.hold(22));
    EXPECT_TRUE(receive_at(22));
}

TEST_F(TiesTest, WhatCouldNotBeSentIsSentLater) {
    start(22);
    table.set_parcel_name(22, {});
    EXPECT_FALSE(ties.hold(22));
    EXPECT_FALSE(ties.renew(false));
    sockaddr_un name{};
    members[22].socket = make_parcel_socket(name);
    table.set_parcel_name(22, name);
    EXPECT_TRUE(ties.renew(false));
    EXPECT_TRUE(receive_at(22));
    end(members[22]);
    EXPECT_TRUE(ties.take_ended());
    EXPECT_TRUE(ties.renew(false)) << "the dead are not missed";
}

TEST_F(TiesTest, TwoThatTieEachOtherKeepOne) {
    own(18);
    std::optional<Ties> low;
    low.emplace(table, sender.get(), SlotNumber{18}, gate);
    ASSERT_TRUE(low->open());
    ASSERT_TRUE(low->hold(kOwn) && ties.hold(18));
    std::optional<Received> to_us = receive_at(kOwn), to_low = receive_at(18);
    ASSERT_TRUE(to_us && to_low);
    low->accept(to_low->message, std::move(to_low->end));
    ties.accept(to_us->message, std::move(to_us->end));
    EXPECT_FALSE(low->take_ended());
    EXPECT_FALSE(ties.take_ended());
    EXPECT_EQ(low->count(), 1U);
    EXPECT_EQ(ties.count(), 1U);
    low.reset();
    EXPECT_TRUE(ties.take_ended());
}

TEST_F(TiesTest, OfAFormerOwnerOfASlotNothingIsTaken) {
    start(22);
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const Fd kept(pair[0]);
    ties.accept({.kind = RingMessage::Kind::Tie, .from = 22, .incarnation = 7}, Fd(pair[1]));
    EXPECT_EQ(ties.count(), 0U);
    EXPECT_TRUE(is_readable(kept.get()));
}

TEST_F(TiesTest, ThoseThatAreFarAreLetGo) {
    std::map<std::uint32_t, Fd> far_ends;
    for (std::uint32_t slot = 1; slot < 12; ++slot) {
        table.set_owner(slot, 100 + slot, true);
        int pair[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        far_ends[slot] = Fd(pair[0]);
        ties.accept({.kind = RingMessage::Kind::Tie, .from = slot, .incarnation = 100 + slot},
                    Fd(pair[1]));
    }
    EXPECT_EQ(ties.count(), static_cast<std::uint32_t>(Ties::kKeptPerSide));
    for (const auto& [slot, end] : far_ends)
        EXPECT_EQ(is_readable(end.get()), slot <= 11 - Ties::kKeptPerSide) << slot;
}

TEST_F(TiesTest, AForkedChildKeepsNoneOpen) {
    start(22);
    ASSERT_TRUE(ties.hold(22));
    const std::optional<Received> got = receive_at(22);
    ASSERT_TRUE(got);
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ties.abandon();
        ::_exit(::write(ready[1], "", 1) == 1 && ::pause() == 0 ? 0 : 1);
    }
    char byte;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_FALSE(is_readable(got->end.get()));
    ties.abandon();
    EXPECT_TRUE(is_readable(got->end.get()));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
}

}  // namespace
}  // namespace feroce::port::ties_test
