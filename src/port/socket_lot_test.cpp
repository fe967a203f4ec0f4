#include "port/socket_lot.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace feroce::port {
namespace socket_lot_test {

ChunkSockets make_sockets(bool with_v6) {
    ChunkSockets out;
    for (Fd& fd : out.v4) fd = Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    for (Fd& fd : out.v6)
        if (with_v6) fd = Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return out;
}

ino_t inode(const Fd& fd) {
    struct stat about {};
    return ::fstat(fd.get(), &about) == 0 ? about.st_ino : 0;
}

TEST(SocketLot, KeepsTheSocketsForWhoeverLooks) {
    const Fd lot = make_lot();
    ASSERT_TRUE(lot.valid());
    EXPECT_TRUE(is_empty(lot.get()));
    EXPECT_FALSE(look_up(lot.get(), 0));
    std::array<ino_t, kChunkSlots> v4{}, v6{};
    {
        const ChunkSockets sockets = make_sockets(true);
        ASSERT_TRUE(park(lot.get(), sockets));
        for (std::size_t i = 0; i < kChunkSlots; ++i) {
            v4[i] = inode(sockets.v4[i]);
            v6[i] = inode(sockets.v6[i]);
        }
    }
    EXPECT_FALSE(is_empty(lot.get()));
    for (int round = 0; round < 2; ++round)
        for (std::uint32_t i = 0; i < kChunkSlots; ++i) {
            const std::optional<SlotSockets> found = look_up(lot.get(), i);
            ASSERT_TRUE(found);
            EXPECT_EQ(inode(found->v4), v4[i]);
            EXPECT_EQ(inode(found->v6), v6[i]);
            EXPECT_NE(::fcntl(found->v4.get(), F_GETFD) & FD_CLOEXEC, 0);
        }
}

TEST(SocketLot, DoesWithoutIpv6) {
    const Fd lot = make_lot();
    ASSERT_TRUE(park(lot.get(), make_sockets(false)));
    const std::optional<SlotSockets> found = look_up(lot.get(), kChunkSlots - 1);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->v4.valid());
    EXPECT_FALSE(found->v6.valid());
}

TEST(SocketLot, NobodyElseCanSendToIt) {
    const Fd lot = make_lot();
    sockaddr_un name{};
    socklen_t length = sizeof name;
    auto* address = reinterpret_cast<sockaddr*>(&name);
    ASSERT_EQ(::getsockname(lot.get(), address, &length), 0);
    const Fd stranger(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::sendto(stranger.get(), "x", 1, MSG_DONTWAIT, address, length), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_TRUE(is_empty(lot.get()));
}

// The kernel hands over as many as there is room for: all of them must be closed again.
TEST(SocketLot, WantOfDescriptorsIsToldAndLeavesNoneOpen) {
    const Fd lot = make_lot();
    ASSERT_TRUE(park(lot.get(), make_sockets(true)));
    const pid_t child = ::fork();
    if (child == 0) {
        const int next = ::dup(0);
        const rlimit limit{static_cast<rlim_t>(next) + 4, static_cast<rlim_t>(next) + 4};
        if (next < 0 || ::close(next) != 0 || ::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(1);
        if (look_up(lot.get(), 0) || errno != EMFILE) ::_exit(2);
        ::_exit(::dup(0) == next ? 0 : 3);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace socket_lot_test
}  // namespace feroce::port
