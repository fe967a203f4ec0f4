// The calls of rsockets, between two ends in one process over the loopback device.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

namespace feroce::rsocket_calls {

class Owned {
public:
    explicit Owned(int fd) : fd_(fd) {}
    ~Owned() { close(); }
    Owned(Owned&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Owned& operator=(Owned&&) = delete;
    operator int() const { return fd_; }
    void close() {
        if (fd_ < 0) return;
        EXPECT_EQ(rclose(std::exchange(fd_, -1)), 0);
    }

private:
    int fd_;
};

Owned make_socket(int flags = 0) {
    const int fd = rsocket(AF_INET, SOCK_STREAM | flags, 0);
    EXPECT_GE(fd, 0) << std::strerror(errno);
    return Owned(fd);
}

sockaddr_in loopback() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

template <class Address>
sockaddr* plain(Address& address) {
    return reinterpret_cast<sockaddr*>(&address);
}

struct Listener {
    Listener() {
        address = loopback();
        EXPECT_EQ(rbind(fd, plain(address), sizeof address), 0) << std::strerror(errno);
        EXPECT_EQ(rlisten(fd, 5), 0) << std::strerror(errno);
        socklen_t length = sizeof address;
        EXPECT_EQ(rgetsockname(fd, plain(address), &length), 0);
        EXPECT_NE(address.sin_port, 0);
    }

    Owned fd = make_socket();
    sockaddr_in address{};
};

struct Ends {
    explicit Ends(int mappings = 0) {
        if (mappings != 0) {
            set(listener.fd, SOL_RDMA, RDMA_IOMAPSIZE, mappings);
            set(client, SOL_RDMA, RDMA_IOMAPSIZE, mappings);
        }
        std::thread connecting([&] {
            EXPECT_EQ(rconnect(client, plain(listener.address), sizeof listener.address), 0)
                << std::strerror(errno);
        });
        server = std::make_unique<Owned>(raccept(listener.fd, nullptr, nullptr));
        connecting.join();
        EXPECT_GE(*server, 0);
    }

    static void set(int fd, int level, int name, int value) {
        EXPECT_EQ(rsetsockopt(fd, level, name, &value, sizeof value), 0) << name;
    }

    Listener listener;
    Owned client = make_socket();
    std::unique_ptr<Owned> server;
};

std::vector<char> pattern(std::size_t size) {
    std::vector<char> out(size);
    for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<char>(i * 31 >> 3);
    return out;
}

short polled(int fd, short events, int timeout = 20'000) {
    pollfd entry{fd, events, 0};
    EXPECT_GE(rpoll(&entry, 1, timeout), 0);
    return entry.revents;
}

TEST(RsocketCalls, StreamsBothWaysAtOnce) {
    Ends ends;
    const std::vector<char> data = pattern(3'000'000);
    const auto sending = [&](int fd) {
        EXPECT_EQ(rsend(fd, data.data(), data.size(), 0), static_cast<ssize_t>(data.size()));
    };
    const auto receiving = [&](int fd) {
        std::vector<char> got(data.size());
        EXPECT_EQ(rrecv(fd, got.data(), got.size(), MSG_WAITALL), static_cast<ssize_t>(got.size()));
        EXPECT_EQ(got, data);
    };
    // Each end has a thread that sends and one that receives: both sleep on the same descriptors.
    std::array<std::thread, 4> threads{
        std::thread(sending, static_cast<int>(ends.client)),
        std::thread(receiving, static_cast<int>(ends.client)),
        std::thread(sending, static_cast<int>(*ends.server)),
        std::thread(receiving, static_cast<int>(*ends.server)),
    };
    for (std::thread& thread : threads) thread.join();
}

TEST(RsocketCalls, NamesAreThoseOfTheEnds) {
    Ends ends;
    sockaddr_in peer{};
    sockaddr_in own{};
    socklen_t length = sizeof peer;
    ASSERT_EQ(rgetpeername(ends.client, plain(peer), &length), 0);
    EXPECT_EQ(peer.sin_port, ends.listener.address.sin_port);
    EXPECT_EQ(rgetsockname(ends.client, plain(own), &length), 0);
    EXPECT_EQ(rgetpeername(*ends.server, plain(peer), &length), 0);
    EXPECT_EQ(peer.sin_port, own.sin_port);
    EXPECT_EQ(peer.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
}

TEST(RsocketCalls, CloseGivesTheRestAndThenTheEnd) {
    Ends ends;
    const std::vector<char> data = pattern(50'000);
    EXPECT_EQ(rwrite(ends.client, data.data(), data.size()), static_cast<ssize_t>(data.size()));
    ends.client.close();
    std::vector<char> got(data.size());
    EXPECT_NE(polled(*ends.server, POLLIN) & POLLIN, 0);
    EXPECT_EQ(rrecv(*ends.server, got.data(), got.size(), MSG_WAITALL),
              static_cast<ssize_t>(got.size()));
    EXPECT_EQ(got, data);
    EXPECT_EQ(rread(*ends.server, got.data(), got.size()), 0);
    EXPECT_NE(polled(*ends.server, POLLIN) & POLLHUP, 0);
    EXPECT_EQ(rwrite(*ends.server, got.data(), 1), -1);
    EXPECT_EQ(errno, ECONNRESET);
    // Nobody acknowledges what the server sent meanwhile; rclose() does not wait for that.
    EXPECT_EQ(rshutdown(*ends.server, SHUT_RDWR), 0);
}

TEST(RsocketCalls, ShutdownEndsOneDirection) {
    Ends ends;
    EXPECT_EQ(rwrite(ends.client, "question", 8), 8);
    EXPECT_EQ(rshutdown(ends.client, SHUT_WR), 0);
    std::array<char, 100> got{};
    EXPECT_EQ(rrecv(*ends.server, got.data(), got.size(), MSG_WAITALL), 8);
    EXPECT_EQ(rrecv(*ends.server, got.data(), got.size(), 0), 0);
    EXPECT_EQ(rwrite(*ends.server, "answer", 6), 6);
    EXPECT_EQ(rrecv(ends.client, got.data(), 6, MSG_WAITALL), 6);
    EXPECT_EQ(rwrite(ends.client, "more", 4), -1);
    EXPECT_EQ(errno, EPIPE);
}

TEST(RsocketCalls, PeekTimeoutsAndVectors) {
    Ends ends;
    const timeval soon{0, 20'000};
    EXPECT_EQ(rsetsockopt(*ends.server, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon), 0);
    std::array<char, 8> got{};
    EXPECT_EQ(rrecv(*ends.server, got.data(), got.size(), 0), -1);
    EXPECT_EQ(errno, EAGAIN);
    std::string a = "ab";
    std::string b = "cdef";
    const std::array<iovec, 2> from{{{a.data(), 2}, {b.data(), 4}}};
    EXPECT_EQ(rwritev(ends.client, from.data(), 2), 6);
    EXPECT_NE(polled(*ends.server, POLLIN) & POLLIN, 0);
    EXPECT_EQ(rrecv(*ends.server, got.data(), 3, MSG_PEEK), 3);
    const std::array<iovec, 2> to{{{got.data(), 3}, {got.data() + 3, 5}}};
    EXPECT_EQ(rreadv(*ends.server, to.data(), 2), 6);
    EXPECT_EQ(std::string_view(got.data(), 6), "abcdef");
    EXPECT_EQ(rrecv(*ends.server, got.data(), 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST(RsocketCalls, NonBlockingFromConnectToFullBuffers) {
    Listener listener;
    Owned client = make_socket(SOCK_NONBLOCK);
    EXPECT_EQ(rconnect(client, plain(listener.address), sizeof listener.address), -1);
    EXPECT_EQ(errno, EINPROGRESS);
    EXPECT_EQ(rfcntl(listener.fd, F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(rfcntl(listener.fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    int server_fd = -1;
    while (server_fd < 0) {  // Both ends move in rpoll() only.
        std::array<pollfd, 2> both{{{listener.fd, POLLIN, 0}, {client, POLLOUT, 0}}};
        ASSERT_GT(rpoll(both.data(), 2, 20'000), 0);
        ASSERT_EQ(both[1].revents, 0);
        if (both[0].revents != 0) server_fd = raccept(listener.fd, nullptr, nullptr);
    }
    Owned server(server_fd);
    EXPECT_EQ(polled(client, POLLOUT), POLLOUT);
    int code = -1;
    socklen_t length = sizeof code;
    EXPECT_EQ(rgetsockopt(client, SOL_SOCKET, SO_ERROR, &code, &length), 0);
    EXPECT_EQ(code, 0);

    const std::vector<char> data = pattern(1 << 20);
    std::size_t sent = 0;
    ssize_t count = 0;
    while ((count = rsend(client, data.data(), data.size(), 0)) > 0)
        sent += static_cast<std::size_t>(count);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(polled(client, POLLOUT, 0), 0);
    std::vector<char> got(sent);
    EXPECT_EQ(rrecv(server, got.data(), sent, MSG_WAITALL), static_cast<ssize_t>(sent));
    EXPECT_EQ(polled(client, POLLOUT), POLLOUT);
}

TEST(RsocketCalls, PollAndSelectTakeKernelDescriptorsToo) {
    Ends ends;
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    std::array<pollfd, 3> entries{
        {{pipe[0], POLLIN, 0}, {*ends.server, POLLIN, 0}, {-1, POLLIN, 0}}};
    EXPECT_EQ(rpoll(entries.data(), 3, 0), 0);
    std::thread later([&] { EXPECT_EQ(::write(pipe[1], "x", 1), 1); });
    EXPECT_EQ(rpoll(entries.data(), 3, 20'000), 1);
    EXPECT_EQ(entries[0].revents, POLLIN);
    later.join();
    char byte = 0;
    EXPECT_EQ(::read(pipe[0], &byte, 1), 1);

    fd_set read;
    fd_set write;
    FD_ZERO(&read);
    FD_ZERO(&write);
    FD_SET(pipe[0], &read);
    FD_SET(*ends.server, &read);
    const int count = std::max(pipe[0], static_cast<int>(*ends.server)) + 1;
    std::thread sender([&] { EXPECT_EQ(rwrite(ends.client, "y", 1), 1); });
    EXPECT_EQ(rselect(count, &read, &write, nullptr, nullptr), 1);
    sender.join();
    EXPECT_TRUE(FD_ISSET(*ends.server, &read));
    EXPECT_FALSE(FD_ISSET(pipe[0], &read));
    timeval none{};
    FD_ZERO(&read);
    EXPECT_EQ(rselect(count, &read, nullptr, nullptr, &none), 0);
    ::close(pipe[0]);
    ::close(pipe[1]);
}

TEST(RsocketCalls, MappedMemoryIsWritten) {
    Ends ends(4);
    std::vector<char> memory(100'000);
    const off_t offset = riomap(*ends.server, memory.data(), memory.size(), PROT_WRITE, 0, 4096);
    ASSERT_EQ(offset, 4096) << std::strerror(errno);
    EXPECT_EQ(rwrite(*ends.server, "m", 1), 1);  // Behind the mapping.
    char byte = 0;
    EXPECT_EQ(rread(ends.client, &byte, 1), 1);
    const std::vector<char> data = pattern(90'000);
    EXPECT_EQ(riowrite(ends.client, data.data(), data.size(), offset + 10, 0), data.size());
    EXPECT_EQ(rwrite(ends.client, "w", 1), 1);  // Behind the bytes.
    EXPECT_EQ(rread(*ends.server, &byte, 1), 1);
    EXPECT_EQ(std::memcmp(memory.data() + 10, data.data(), data.size()), 0);
    EXPECT_EQ(riowrite(ends.client, data.data(), 1, 0, 0), static_cast<std::size_t>(-1));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(riounmap(*ends.server, memory.data(), memory.size()), 0);
    EXPECT_EQ(riounmap(*ends.server, memory.data(), memory.size()), -1);
}

TEST(RsocketCalls, RefusesWithTheCauses) {
    EXPECT_EQ(rsocket(AF_UNIX, SOCK_STREAM, 0), -1);
    EXPECT_EQ(errno, EAFNOSUPPORT);
    EXPECT_EQ(rsocket(AF_INET, SOCK_SEQPACKET, 0), -1);
    EXPECT_EQ(errno, EPROTONOSUPPORT);
    EXPECT_EQ(rsend(9999, "x", 1, 0), -1);
    EXPECT_EQ(errno, EBADF);
    Owned fresh = make_socket();
    EXPECT_EQ(rsend(fresh, "x", 1, 0), -1);
    EXPECT_EQ(errno, ENOTCONN);
    EXPECT_EQ(raccept(fresh, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EINVAL);
    int value = 0;
    socklen_t length = sizeof value;
    EXPECT_EQ(rgetsockopt(fresh, SOL_SOCKET, SO_MARK, &value, &length), -1);
    EXPECT_EQ(errno, ENOPROTOOPT);
    EXPECT_EQ(rsetsockopt(fresh, IPPROTO_TCP, TCP_NODELAY, &value, 1), -1);
    EXPECT_EQ(errno, EINVAL);
    sockaddr_in nobody = loopback();
    nobody.sin_port = htons(9);
    EXPECT_EQ(rconnect(fresh, plain(nobody), sizeof nobody), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
}

TEST(RsocketCalls, OptionsAreKept) {
    Owned fd = make_socket();
    Ends::set(fd, SOL_SOCKET, SO_RCVBUF, 100'000);
    Ends::set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    Ends::set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 3);
    Ends::set(fd, SOL_RDMA, RDMA_RQSIZE, 1);
    const auto get = [&](int level, int name) {
        int value = -1;
        socklen_t length = sizeof value;
        EXPECT_EQ(rgetsockopt(fd, level, name, &value, &length), 0);
        return value;
    };
    EXPECT_GE(get(SOL_SOCKET, SO_RCVBUF), 200'000);
    EXPECT_EQ(get(SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(get(IPPROTO_TCP, TCP_KEEPIDLE), 3);
    EXPECT_EQ(get(SOL_RDMA, RDMA_RQSIZE), 16);
    EXPECT_EQ(get(SOL_SOCKET, SO_TYPE), SOCK_STREAM);
}

TEST(RsocketCalls, TimeoutsEndAcceptAndConnect) {
    Listener listener;
    const timeval soon{0, 20'000};
    EXPECT_EQ(rsetsockopt(listener.fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon), 0);
    EXPECT_EQ(raccept(listener.fd, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EAGAIN);
    Owned client = make_socket();  // Nobody accepts it.
    EXPECT_EQ(rsetsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon), 0);
    EXPECT_EQ(rconnect(client, plain(listener.address), sizeof listener.address), -1);
    EXPECT_EQ(errno, EINPROGRESS);
}

TEST(RsocketCalls, TimeoutsAreTimes) {
    Owned fd = make_socket();
    for (const timeval wrong : {timeval{0, 1'000'000}, timeval{0, -1}, timeval{-1, 0}}) {
        EXPECT_EQ(rsetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wrong, sizeof wrong), -1);
        EXPECT_EQ(errno, EDOM);
    }
    const timeval longest{std::numeric_limits<time_t>::max(), 999'999};
    EXPECT_EQ(rsetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest), 0);
    timeval kept{};
    socklen_t length = sizeof kept;
    EXPECT_EQ(rgetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kept, &length), 0);
    EXPECT_GE(kept.tv_sec, 1'000'000'000);
}

void* read_for_ever(void* fd) {
    char byte = 0;
    while (rread(*static_cast<int*>(fd), &byte, 1) == 1) continue;
    return nullptr;
}

// The reader may be cancelled where it waits and where it gets up.
TEST(RsocketCalls, AReaderCanBeCancelled) {
    Ends ends;
    int fd = *ends.server;
    for (int i = 0; i < 300; ++i) {
        pthread_t reader{};
        ASSERT_EQ(::pthread_create(&reader, nullptr, read_for_ever, &fd), 0);
        EXPECT_EQ(rwrite(ends.client, "abc", 3), 3);
        EXPECT_EQ(::pthread_cancel(reader), 0);
        void* result = nullptr;
        EXPECT_EQ(::pthread_join(reader, &result), 0);
        EXPECT_EQ(result, PTHREAD_CANCELED);
    }
    EXPECT_EQ(rwrite(ends.client, "z", 1), 1);
    char byte = 0;
    while (byte != 'z') ASSERT_EQ(rread(fd, &byte, 1), 1);
}

TEST(RsocketCalls, KeepAliveAsksAnIdlePeer) {
    Ends ends;
    Ends::set(ends.client, SOL_SOCKET, SO_KEEPALIVE, 1);
    Ends::set(ends.client, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    EXPECT_EQ(polled(ends.client, POLLIN, 1500), 0);  // Asked once meanwhile, and all is well.
    EXPECT_EQ(rwrite(*ends.server, "z", 1), 1);
    char byte = 0;
    EXPECT_EQ(rread(ends.client, &byte, 1), 1);
}

}  // namespace feroce::rsocket_calls
