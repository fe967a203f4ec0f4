// The same stream by the kernel's TCP and by rsockets: how many bytes a second blocking calls move,
// and how long a round trip takes, with blocking calls and with calls that do not wait. The far end
// counts what came: a figure of a stream that lost something is none.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "verbs/measure.hpp"

using namespace feroce::bench;

namespace {

// The calls of a kind of sockets.
struct Calls {
    int (*open)(int, int, int);
    int (*bind)(int, const sockaddr*, socklen_t);
    int (*listen)(int, int);
    int (*accept)(int, sockaddr*, socklen_t*);
    int (*connect)(int, const sockaddr*, socklen_t);
    int (*name)(int, sockaddr*, socklen_t*);
    int (*set)(int, int, int, const void*, socklen_t);
    ssize_t (*send)(int, const void*, size_t, int);
    ssize_t (*receive)(int, void*, size_t, int);
    int (*shut)(int, int);
    int (*close)(int);
};

constexpr Calls kTcp{
    [](int domain, int type, int protocol) { return ::socket(domain, type, protocol); },
    [](int fd, const sockaddr* to, socklen_t size) { return ::bind(fd, to, size); },
    [](int fd, int backlog) { return ::listen(fd, backlog); },
    [](int fd, sockaddr* from, socklen_t* size) { return ::accept(fd, from, size); },
    [](int fd, const sockaddr* to, socklen_t size) { return ::connect(fd, to, size); },
    [](int fd, sockaddr* to, socklen_t* size) { return ::getsockname(fd, to, size); },
    ::setsockopt,
    ::send,
    ::recv,
    ::shutdown,
    ::close};
constexpr Calls kRsockets{rsocket,     rbind, rlisten, raccept,   rconnect, rgetsockname,
                          rsetsockopt, rsend, rrecv,   rshutdown, rclose};

sockaddr* plain(sockaddr_in& address) {
    return reinterpret_cast<sockaddr*>(&address);
}

void hurry(const Calls& calls, int fd) {
    const int one = 1;
    require(calls.set(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
}

int accept_one(const Calls& calls, Channel channel) {
    const int listener = calls.open(AF_INET, SOCK_STREAM, 0);
    require(listener >= 0, "socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    require(calls.bind(listener, plain(address), sizeof address) == 0, "bind");
    require(calls.listen(listener, 1) == 0, "listen");
    require(calls.name(listener, plain(address), &size) == 0, "getsockname");
    channel.send(address);
    const int fd = calls.accept(listener, nullptr, nullptr);
    require(fd >= 0, "accept");
    calls.close(listener);
    hurry(calls, fd);
    return fd;
}

int connect_one(const Calls& calls, Channel channel) {
    auto address = channel.receive<sockaddr_in>();
    const int fd = calls.open(AF_INET, SOCK_STREAM, 0);
    require(fd >= 0, "socket");
    require(calls.connect(fd, plain(address), sizeof address) == 0, "connect");
    hurry(calls, fd);
    return fd;
}

void bandwidth(const Calls& calls, std::size_t size, double seconds) {
    std::size_t moved = 0;
    double elapsed = 0;
    const auto far = [&](Channel channel) {
        const int fd = accept_one(calls, channel);
        std::vector<char> buffer(size);
        std::size_t came = 0;
        ssize_t got = 0;
        while ((got = calls.receive(fd, buffer.data(), size, 0)) > 0)
            came += static_cast<std::size_t>(got);
        require(got == 0, "receive");
        channel.send(came);
        calls.close(fd);
    };
    const auto near = [&](Channel channel) {
        const int fd = connect_one(calls, channel);
        const std::vector<char> buffer(size, 'x');
        const Clock::time_point start = Clock::now();
        while (seconds_since(start) < seconds) {
            const ssize_t sent = calls.send(fd, buffer.data(), size, MSG_NOSIGNAL);
            require(sent > 0, "send");
            moved += static_cast<std::size_t>(sent);
        }
        calls.shut(fd, SHUT_WR);
        errno = EIO;
        require(channel.receive<std::size_t>() == moved, "bytes are missing");
        elapsed = seconds_since(start);
        calls.close(fd);
    };
    const double cpu = run_pair(near, far);
    print_stream(static_cast<double>(moved), elapsed, cpu);
}

// Without waiting, the caller asks until all is there.
void receive_all(const Calls& calls, int fd, std::vector<char>& to, int flags) {
    std::size_t got = 0;
    while (got < to.size()) {
        const ssize_t count = calls.receive(fd, to.data() + got, to.size() - got, flags);
        if (count < 0 && errno == EAGAIN && (flags & MSG_DONTWAIT) != 0) continue;
        require(count > 0, "receive");
        got += static_cast<std::size_t>(count);
    }
}

void send_all(const Calls& calls, int fd, const std::vector<char>& from) {
    const ssize_t sent = calls.send(fd, from.data(), from.size(), MSG_NOSIGNAL);
    require(sent == static_cast<ssize_t>(from.size()), "send");
}

void latency(const Calls& calls, std::size_t size, int rounds, int flags) {
    const auto far = [&](Channel channel) {
        const int fd = accept_one(calls, channel);
        std::vector<char> buffer(size);
        for (int i = 0; i < rounds; ++i) {
            receive_all(calls, fd, buffer, flags);
            send_all(calls, fd, buffer);
        }
        channel.receive<bool>();
        calls.close(fd);
    };
    const auto near = [&](Channel channel) {
        const int fd = connect_one(calls, channel);
        std::vector<char> buffer(size);
        Latencies times;
        for (int i = 0; i < rounds; ++i) {
            std::fill(buffer.begin(), buffer.end(), static_cast<char>(i));
            const Clock::time_point start = Clock::now();
            send_all(calls, fd, buffer);
            receive_all(calls, fd, buffer, flags);
            times.seconds.push_back(seconds_since(start));
            errno = EIO;
            require(buffer.back() == static_cast<char>(i), "other bytes came back");
        }
        channel.send(true);
        calls.close(fd);
        times.print();
    };
    run_pair(near, far);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string kind = argc == 5 ? argv[1] : "";
    const std::string what = argc == 5 ? argv[2] : "";
    const long size = argc == 5 ? std::atol(argv[3]) : 0;
    const double amount = argc == 5 ? std::atof(argv[4]) : 0;
    const bool known = (kind == "tcp" || kind == "rsocket") &&
                       (what == "bandwidth" || what == "latency" || what == "busy");
    if (!known || size <= 0 || amount <= 0) {
        std::fprintf(stderr,
                     "usage: stream_rate tcp|rsocket bandwidth SIZE SECONDS\n"
                     "       stream_rate tcp|rsocket latency|busy SIZE ROUNDS\n");
        return 2;
    }
    const Calls& calls = kind == "tcp" ? kTcp : kRsockets;
    const auto bytes = static_cast<std::size_t>(size);
    if (what == "bandwidth")
        bandwidth(calls, bytes, amount);
    else
        latency(calls, bytes, static_cast<int>(amount), what == "busy" ? MSG_DONTWAIT : 0);
    return 0;
}
