// The kernel's sockets on loopback as peers and limits of the drop-in: TCP stream and ping-pong,
// UDP with segmentation offload, busy UDP ping-pong, and one datagram a system call. And the memory
// itself: how fast one thread copies.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>

#include <cstring>
#include <string>

#include "measure.hpp"

using namespace feroce::bench;

namespace {

constexpr double kSeconds = 0.6;
constexpr int kRounds = 20000;

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    out.sin_port = port;
    return out;
}

int open_socket(int type) {
    const int fd = ::socket(AF_INET, type | SOCK_CLOEXEC, 0);
    require(fd >= 0, "socket");
    const sockaddr_in any = loopback(0);
    require(::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0, "bind");
    return fd;
}

sockaddr_in name_of(int fd) {
    sockaddr_in out{};
    socklen_t size = sizeof out;
    require(::getsockname(fd, reinterpret_cast<sockaddr*>(&out), &size) == 0, "getsockname");
    return out;
}

void connect_to(int fd, const sockaddr_in& peer) {
    require(::connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) == 0, "connect");
}

int accept_one(Channel channel) {
    const int listener = open_socket(SOCK_STREAM);
    require(::listen(listener, 1) == 0, "listen");
    channel.send(name_of(listener));
    const int fd = ::accept(listener, nullptr, nullptr);
    require(fd >= 0, "accept");
    return fd;
}

int connect_one(Channel channel) {
    const int fd = open_socket(SOCK_STREAM);
    connect_to(fd, channel.receive<sockaddr_in>());
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

void tcp_stream(std::size_t size) {
    double moved = 0;
    double elapsed = 0;
    const auto far = [size](Channel channel) {
        const int fd = accept_one(channel);
        std::vector<char> buffer(size);
        while (::recv(fd, buffer.data(), buffer.size(), 0) > 0) {
        }
        channel.send(true);
    };
    const auto near = [&](Channel channel) {
        const int fd = connect_one(channel);
        const std::vector<char> buffer(size, 'x');
        const Clock::time_point start = Clock::now();
        while (seconds_since(start) < kSeconds) {
            const ssize_t sent = ::send(fd, buffer.data(), buffer.size(), MSG_NOSIGNAL);
            require(sent > 0, "send");
            moved += static_cast<double>(sent);
        }
        ::shutdown(fd, SHUT_WR);
        channel.receive<bool>();
        elapsed = seconds_since(start);
    };
    const double cpu = run_pair(near, far);
    print_stream(moved, elapsed, cpu);
}

// Both ends spin: the limit without wake-ups. A message that begins with 'q' ends it.
void echo(int fd, std::size_t size) {
    std::vector<char> buffer(size);
    for (;;) {
        const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (got < 0) continue;
        if (got == 0 || buffer[0] == 'q') return;
        (void)!::send(fd, buffer.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL);
    }
}

void ping(int fd, std::size_t size) {
    Latencies times;
    std::vector<char> buffer(size, 'x');
    for (int i = 0; i < kRounds; ++i) {
        const Clock::time_point start = Clock::now();
        require(::send(fd, buffer.data(), size, MSG_NOSIGNAL) > 0, "send");
        while (::recv(fd, buffer.data(), size, MSG_DONTWAIT) < 0) {
        }
        times.seconds.push_back(seconds_since(start));
    }
    buffer[0] = 'q';
    (void)!::send(fd, buffer.data(), size, MSG_NOSIGNAL);
    times.print();
}

void tcp_pingpong() {
    run_pair([](Channel channel) { ping(connect_one(channel), 8); },
             [](Channel channel) {
                 const int fd = accept_one(channel);
                 const int one = 1;
                 ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                 echo(fd, 8);
             });
}

int udp_joined(Channel channel) {
    const int fd = open_socket(SOCK_DGRAM);
    channel.send(name_of(fd));
    connect_to(fd, channel.receive<sockaddr_in>());
    return fd;
}

// As RoCEv2 must send: from sockets that are not connected, or the IPv4 id, which its checksum
// covers, could not be known.
void udp_pingpong() {
    const auto open = [](Channel channel, sockaddr_in& peer) {
        const int fd = open_socket(SOCK_DGRAM);
        const int never_fragment = IP_PMTUDISC_DO;
        ::setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &never_fragment, sizeof never_fragment);
        channel.send(name_of(fd));
        peer = channel.receive<sockaddr_in>();
        return fd;
    };
    const auto exchange = [](int fd, const sockaddr_in& peer, bool first, Latencies& times) {
        char buffer[8] = {};
        const auto send = [&] {
            require(::sendto(fd, buffer, sizeof buffer, 0, reinterpret_cast<const sockaddr*>(&peer),
                             sizeof peer) > 0,
                    "sendto");
        };
        for (int i = 0; i < kRounds; ++i) {
            const Clock::time_point start = Clock::now();
            if (first) send();
            while (::recvfrom(fd, buffer, sizeof buffer, MSG_DONTWAIT, nullptr, nullptr) < 0) {
            }
            if (!first) send();
            times.seconds.push_back(seconds_since(start));
        }
    };
    Latencies times;
    run_pair(
        [&](Channel channel) {
            sockaddr_in peer;
            const int fd = open(channel, peer);
            exchange(fd, peer, true, times);
        },
        [&](Channel channel) {
            sockaddr_in peer;
            const int fd = open(channel, peer);
            exchange(fd, peer, false, times);
        });
    times.print();
}

// The receiver answers each burst with a byte, so nothing overflows: goodput, two bursts on the
// way.
void udp_bursts(std::size_t burst, int segment) {
    double moved = 0;
    double elapsed = 0;
    const auto far = [burst](Channel channel) {
        const int fd = udp_joined(channel);
        const int one = 1;
        ::setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof one);
        std::vector<char> buffer(65536);
        std::size_t got = 0;
        for (unsigned turn = 1; turn % 256 != 0 || !channel.readable(); ++turn) {
            const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
            if (n > 0) got += static_cast<std::size_t>(n);
            for (; got >= burst; got -= burst) (void)!::send(fd, "k", 1, 0);
        }
    };
    const auto near = [&](Channel channel) {
        const int fd = udp_joined(channel);
        if (segment > 0)
            require(::setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) == 0,
                    "UDP_SEGMENT");
        const std::vector<char> buffer(burst, 'x');
        const Clock::time_point start = Clock::now();
        int on_the_way = 0;
        while (seconds_since(start) < kSeconds) {
            for (; on_the_way < 2; ++on_the_way)
                require(::send(fd, buffer.data(), burst, 0) > 0, "send");
            char answer;
            if (::recv(fd, &answer, 1, MSG_DONTWAIT) != 1) continue;
            --on_the_way;
            moved += static_cast<double>(burst);
        }
        elapsed = seconds_since(start);
        channel.send(true);
    };
    const double cpu = run_pair(near, far);
    print_stream(moved, elapsed, cpu);
}

void udp_messages() {
    double elapsed = 0;
    std::uint64_t received = 0;
    const auto far = [](Channel channel) {
        const int fd = udp_joined(channel);
        std::uint64_t count = 0;
        char buffer[64];
        for (unsigned turn = 1; turn % 256 != 0 || !channel.readable(); ++turn)
            if (::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) > 0) ++count;
        channel.send(count);
    };
    const auto near = [&](Channel channel) {
        const int fd = udp_joined(channel);
        const char buffer[64] = {};
        const sockaddr_in peer = [fd] {
            sockaddr_in out{};
            socklen_t size = sizeof out;
            ::getpeername(fd, reinterpret_cast<sockaddr*>(&out), &size);
            return out;
        }();
        const Clock::time_point start = Clock::now();
        while (seconds_since(start) < kSeconds)
            ::sendto(fd, buffer, sizeof buffer, 0, reinterpret_cast<const sockaddr*>(&peer),
                     sizeof peer);
        elapsed = seconds_since(start);
        channel.send(true);
        received = channel.receive<std::uint64_t>();
    };
    run_pair(near, far);
    print_rate(static_cast<double>(received), elapsed);
}

// From one buffer to another, over and over, as verbs_limits does with its WRITEs.
void memory_copy(std::size_t size) {
    pin_to_core(0);
    const std::vector<char> from(size, 'x');
    std::vector<char> to(size);
    double moved = 0;
    const double before = cpu_seconds(RUSAGE_SELF);
    const Clock::time_point start = Clock::now();
    for (; seconds_since(start) < kSeconds; moved += static_cast<double>(size)) {
        std::memcpy(to.data(), from.data(), size);
        asm volatile("" : : "r"(to.data()) : "memory");  // The copy is used.
    }
    print_stream(moved, seconds_since(start), cpu_seconds(RUSAGE_SELF) - before);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    const std::size_t size = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
    if (what == "tcp_stream" && size > 0) {
        tcp_stream(size);
    } else if (what == "memory_copy" && size > 0) {
        memory_copy(size);
    } else if (what == "tcp_pingpong") {
        tcp_pingpong();
    } else if (what == "udp_pingpong") {
        udp_pingpong();
    } else if (what == "udp_stream") {
        udp_bursts(14 * 4132, 4132);  // What a 4 KiB RoCEv2 packet carries, 14 a system call.
    } else if (what == "udp_messages") {
        udp_messages();
    } else {
        std::fprintf(stderr,
                     "usage: socket_limits tcp_stream SIZE | tcp_pingpong | udp_stream | "
                     "udp_pingpong | udp_messages\n");
        return 2;
    }
    return 0;
}
