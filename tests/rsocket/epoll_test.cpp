// repoll_create(), repoll_ctl() and repoll_wait(), over the loopback device.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <future>
#include <set>
#include <thread>

extern "C" {
int repoll_create(int flags);
int repoll_ctl(int epoll, int operation, int descriptor, epoll_event* event);
int repoll_wait(int epoll, epoll_event* events, int room, int timeout);
}

namespace feroce::rsocket_epoll {
namespace {

constexpr int kPatienceMs = 30'000;

class Epoll : public testing::Test {
protected:
    void SetUp() override {
        epoll = repoll_create(EPOLL_CLOEXEC);
        ASSERT_GE(epoll, 0) << std::strerror(errno);
    }
    void TearDown() override {
        for (const int socket : {client, server, listener}) {
            if (socket < 0) continue;
            EXPECT_EQ(rclose(socket), 0);
        }
        EXPECT_EQ(rclose(epoll), 0);
        EXPECT_EQ(rclose(epoll), -1) << "it was closed";
        if (counter >= 0) ::close(counter);
    }

    int change(int operation, int descriptor, std::uint32_t events = 0) const {
        epoll_event event{};
        event.events = events;
        event.data.fd = descriptor;
        return repoll_ctl(epoll, operation, descriptor, &event);
    }
    void add(int descriptor, std::uint32_t events) const {
        ASSERT_EQ(change(EPOLL_CTL_ADD, descriptor, events), 0) << std::strerror(errno);
    }
    // The one descriptor that is ready, and its events; -1 if there is none in time.
    int ready(int timeout = kPatienceMs) {
        std::array<epoll_event, 8> found{};
        const int count = repoll_wait(epoll, found.data(), found.size(), timeout);
        EXPECT_LE(count, 1);
        if (count != 1) return -1;
        seen = found[0].events;
        return found[0].data.fd;
    }
    void listen() {
        listener = rsocket(AF_INET, SOCK_STREAM, 0);
        ASSERT_GE(listener, 0);
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ASSERT_EQ(rbind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
        ASSERT_EQ(rlisten(listener, 5), 0);
        socklen_t length = sizeof address;
        ASSERT_EQ(rgetsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
    }
    void connect() {
        listen();
        client = rsocket(AF_INET, SOCK_STREAM, 0);
        std::thread connecting([this] {
            EXPECT_EQ(rconnect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
        });
        server = raccept(listener, nullptr, nullptr);
        connecting.join();
        ASSERT_GE(server, 0);
    }
    void make_counter() {
        counter = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        ASSERT_GE(counter, 0);
    }

    sockaddr_in address{};
    int epoll = -1, listener = -1, client = -1, server = -1, counter = -1;
    std::uint32_t seen = 0;
};

TEST_F(Epoll, TellsOfRequestsDataAndTheEnd) {
    listen();
    add(listener, EPOLLIN);
    EXPECT_EQ(ready(0), -1);
    client = rsocket(AF_INET, SOCK_STREAM, 0);
    std::thread connecting([this] {
        EXPECT_EQ(rconnect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    });
    EXPECT_EQ(ready(), listener);
    server = raccept(listener, nullptr, nullptr);
    connecting.join();
    ASSERT_GE(server, 0);
    add(server, EPOLLIN | EPOLLRDHUP);
    EXPECT_EQ(ready(0), -1);
    ASSERT_EQ(rsend(client, "hello", 5, 0), 5);
    EXPECT_EQ(ready(), server);
    EXPECT_EQ(ready(), server) << "it was not read";
    EXPECT_EQ(seen, static_cast<std::uint32_t>(EPOLLIN));
    std::array<char, 16> bytes{};
    EXPECT_EQ(rrecv(server, bytes.data(), bytes.size(), 0), 5);
    EXPECT_EQ(ready(0), -1);
    ASSERT_EQ(rshutdown(client, SHUT_WR), 0);
    EXPECT_EQ(ready(), server);
    EXPECT_NE(seen & EPOLLRDHUP, 0u);
}

TEST_F(Epoll, DescriptorsOfTheKernelAreAmongThem) {
    connect();
    make_counter();
    add(server, EPOLLIN);
    add(counter, EPOLLIN);
    EXPECT_EQ(ready(0), -1);
    ASSERT_EQ(::eventfd_write(counter, 1), 0);
    EXPECT_EQ(ready(), counter);
    ASSERT_EQ(change(EPOLL_CTL_DEL, counter), 0);
    EXPECT_EQ(ready(0), -1);
    ASSERT_EQ(change(EPOLL_CTL_MOD, server, EPOLLIN | EPOLLOUT), 0);
    EXPECT_EQ(ready(), server);
    EXPECT_EQ(seen, static_cast<std::uint32_t>(EPOLLOUT));
}

TEST_F(Epoll, OneShotIsToldOnce) {
    make_counter();
    ASSERT_EQ(::eventfd_write(counter, 1), 0);
    add(counter, EPOLLIN | EPOLLONESHOT);
    EXPECT_EQ(ready(), counter);
    EXPECT_EQ(ready(0), -1);
    ASSERT_EQ(change(EPOLL_CTL_MOD, counter, EPOLLIN | EPOLLONESHOT), 0);
    EXPECT_EQ(ready(), counter);
}

// More are ready than there is room: each has its turn.
TEST_F(Epoll, EveryReadyDescriptorHasItsTurn) {
    std::array<int, 5> counters{};
    for (int& one : counters) {
        one = ::eventfd(1, EFD_CLOEXEC);
        ASSERT_GE(one, 0);
        add(one, EPOLLIN);
    }
    std::set<int> told;
    for (std::size_t i = 0; i < counters.size(); ++i) {
        epoll_event found{};
        ASSERT_EQ(repoll_wait(epoll, &found, 1, 0), 1);
        told.insert(found.data.fd);
    }
    EXPECT_EQ(told.size(), counters.size());
    for (const int one : counters) ::close(one);
    EXPECT_EQ(ready(0), -1) << "closed descriptors are in no set";
}

// Both that wait hear of it: a change reaches every thread that sleeps on the old set.
TEST_F(Epoll, AChangeWakesThoseThatWait) {
    make_counter();
    ASSERT_EQ(::eventfd_write(counter, 1), 0);
    const auto wait = [this] {
        epoll_event found{};
        return repoll_wait(epoll, &found, 1, kPatienceMs);
    };
    auto first = std::async(std::launch::async, wait);
    auto second = std::async(std::launch::async, wait);
    add(counter, EPOLLIN);
    EXPECT_EQ(first.get(), 1);
    EXPECT_EQ(second.get(), 1);
}

TEST_F(Epoll, AClosedSocketLeavesTheSet) {
    connect();
    add(server, EPOLLOUT);
    EXPECT_EQ(ready(), server);
    EXPECT_EQ(rclose(server), 0);
    EXPECT_EQ(change(EPOLL_CTL_DEL, server), -1);
    EXPECT_EQ(errno, ENOENT);
    server = -1;
}

// Wherever the thread that waits has got to by then: many rounds, of which some meet each place.
TEST_F(Epoll, ClosingTheSetEndsTheWait) {
    for (int round = 0; round < 500; ++round) {
        const int set = repoll_create(EPOLL_CLOEXEC);
        ASSERT_GE(set, 0);
        std::atomic<bool> begun{false};
        int code = 0;
        std::thread waiting([&] {
            epoll_event found{};
            begun = true;
            code = repoll_wait(set, &found, 1, kPatienceMs) == -1 ? errno : 0;
        });
        while (!begun) std::this_thread::yield();
        for (int i = 0; i < round % 100; ++i) static_cast<void>(::getppid());
        EXPECT_EQ(rclose(set), 0);
        waiting.join();
        ASSERT_EQ(code, EBADF) << "in round " << round;
    }
}

// The number of a set that close(2) closed comes back as the next set's.
TEST_F(Epoll, ASetClosedByTheKernelsCallHarmsNoOther) {
    const int first = repoll_create(EPOLL_CLOEXEC);
    ASSERT_GE(first, 0);
    ASSERT_EQ(::close(first), 0);
    const int second = repoll_create(EPOLL_CLOEXEC);
    ASSERT_EQ(second, first);
    EXPECT_NE(::fcntl(second, F_GETFD), -1) << "the descriptor of the new set is closed";
    epoll_event found{};
    EXPECT_EQ(repoll_wait(second, &found, 1, 0), 0);
    EXPECT_EQ(rclose(second), 0);
    EXPECT_EQ(::fcntl(second, F_GETFD), -1);
}

TEST_F(Epoll, MistakesAreToldAsEpollDoes) {
    make_counter();
    const auto code = [](int result) { return result == -1 ? errno : 0; };
    add(counter, EPOLLIN);
    EXPECT_EQ(code(change(EPOLL_CTL_ADD, counter, EPOLLIN)), EEXIST);
    EXPECT_EQ(code(change(EPOLL_CTL_DEL, counter)), 0);
    EXPECT_EQ(code(change(EPOLL_CTL_DEL, counter)), ENOENT);
    EXPECT_EQ(code(change(EPOLL_CTL_MOD, counter, EPOLLIN)), ENOENT);
    EXPECT_EQ(code(change(99, counter, EPOLLIN)), EINVAL);
    EXPECT_EQ(code(change(EPOLL_CTL_ADD, epoll, EPOLLIN)), EINVAL);
    EXPECT_EQ(code(change(EPOLL_CTL_ADD, -1, EPOLLIN)), EBADF);
    EXPECT_EQ(code(repoll_ctl(epoll, EPOLL_CTL_ADD, counter, nullptr)), EFAULT);
    EXPECT_EQ(code(repoll_ctl(counter, EPOLL_CTL_DEL, epoll, nullptr)), EBADF);
    epoll_event found{};
    EXPECT_EQ(code(repoll_wait(epoll, &found, 0, 0)), EINVAL);
    EXPECT_EQ(code(repoll_wait(epoll, nullptr, 1, 0)), EFAULT);
    EXPECT_EQ(code(repoll_wait(counter, &found, 1, 0)), EBADF);
    EXPECT_EQ(code(repoll_create(12345)), EINVAL);
    std::FILE* file = std::tmpfile();
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(code(change(EPOLL_CTL_ADD, ::fileno(file), EPOLLIN)), EPERM);
    std::fclose(file);
}

TEST_F(Epoll, AForkedChildHasNoneOfItsParents) {
    const pid_t child = ::fork();
    if (child == 0) {
        epoll_event found{};
        const bool gone = repoll_wait(epoll, &found, 1, 0) == -1 && errno == EBADF;
        ::_exit(gone ? 0 : 1);
    }
    int result = -1;
    ASSERT_EQ(::waitpid(child, &result, 0), child);
    EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace feroce::rsocket_epoll
