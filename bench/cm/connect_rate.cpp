// connect_rate COUNT ROUNDS [ROW]: sets up and tears down COUNT connections in each round, between
// two processes over loopback: TCP one after another, rdma_cm one after another, and rdma_cm with
// many under way. Prints a line `NAME RATE` for each, and after each round a line `usage` with what
// each process holds. With ROW, the name of a line, only that is done: for strace and callgrind.
// Waits for the end of its input before it ends, so that it can be looked at. The child is the
// server; it is forked before either side has a device.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "endpoint.hpp"
#include "usage.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kAtOnce = 64;

std::string_view only_row;  // Empty: all.

struct Ports {
    std::uint16_t tcp;
    std::uint16_t rdma;
};

template <typename T>
void send_value(int fd, const T& value) {
    if (::write(fd, &value, sizeof value) != sizeof value) die("write");
}

template <typename T>
bool receive_value(int fd, T& value) {
    return ::read(fd, &value, sizeof value) == sizeof value;
}

int listen_tcp(std::uint16_t& port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof address;
    if (fd < 0 || ::bind(fd, generic(address), bytes) != 0 || ::listen(fd, 128) != 0 ||
        ::getsockname(fd, generic(address), &bytes) != 0)
        die("listen");
    port = ntohs(address.sin_port);
    return fd;
}

// The peer closes first, as the client of rdma_cm disconnects first.
void serve_tcp(int listener) {
    const int fd = ::accept(listener, nullptr, nullptr);
    if (fd < 0) die("accept");
    char none = 0;
    if (::read(fd, &none, 1) != 0) die("read");
    ::close(fd);
}

// Answers each byte on `control` with the usage, once nothing is in timewait any more.
[[noreturn]] void serve(int control) {
    Ports ports{};
    const int tcp = listen_tcp(ports.tcp);
    Endpoint endpoint;
    rdma_cm_id* listener = endpoint.listen(ports.rdma);
    send_value(control, ports);
    pollfd waiting[] = {{tcp, POLLIN, 0}, {endpoint.fd(), POLLIN, 0}, {control, POLLIN, 0}};
    for (;;) {
        if (::poll(waiting, 3, -1) < 0) die("poll");
        if ((waiting[0].revents & POLLIN) != 0) serve_tcp(tcp);
        if ((waiting[1].revents & POLLIN) != 0) endpoint.serve_event();
        if (waiting[2].revents == 0) continue;
        char question = 0;
        if (!receive_value(control, question)) break;
        endpoint.settle();
        send_value(control, usage_now());
    }
    rdma_destroy_id(listener);
    std::exit(0);
}

void connect_tcp(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = loopback(port);
    if (fd < 0 || ::connect(fd, generic(address), sizeof address) != 0) die("connect");
    char none = 0;
    if (::shutdown(fd, SHUT_WR) != 0 || ::read(fd, &none, 1) != 0) die("close");
    ::close(fd);
}

template <typename Work>
void measure(const char* name, int count, Work&& work) {
    if (!only_row.empty() && only_row != name) return;
    const Clock::time_point begin = Clock::now();
    work();
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    std::printf("%s %.1f\n", name, count / seconds.count());
}

void run(int control, int count, int rounds) {
    Ports ports{};
    if (!receive_value(control, ports)) die("the server did not start");
    Endpoint endpoint;
    for (int round = 0; round < rounds; round++) {
        measure("tcp", count, [&] {
            for (int i = 0; i < count; i++) connect_tcp(ports.tcp);
        });
        measure("rdma_cm", count, [&] { endpoint.connect_many(ports.rdma, count, 1); });
        measure("rdma_cm_64", count, [&] { endpoint.connect_many(ports.rdma, count, kAtOnce); });
        endpoint.settle();
        const Usage ours = usage_now();
        Usage theirs{};
        send_value(control, 'u');
        if (!receive_value(control, theirs)) die("the server ended");
        std::printf("usage client %zu %zu server %zu %zu\n", ours.descriptors, ours.heap_bytes,
                    theirs.descriptors, theirs.heap_bytes);
        std::fflush(stdout);
    }
    std::printf("done\n");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
}

}  // namespace

void die(const char* what) {
    std::fprintf(stderr, "connect_rate: %s: %s\n", what, std::strerror(errno));
    std::exit(1);
}

int main(int words, char** word) {
    const bool given = words == 3 || words == 4;
    const int count = given ? std::atoi(word[1]) : 0;
    const int rounds = given ? std::atoi(word[2]) : 0;
    if (count < 1 || rounds < 1) {
        std::fputs("usage: connect_rate COUNT ROUNDS [ROW]\n", stderr);
        return 2;
    }
    if (words == 4) only_row = word[3];
    int control[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0) die("socketpair");
    const pid_t server = ::fork();
    if (server == 0) {
        ::close(control[0]);
        serve(control[1]);
    }
    ::close(control[1]);
    run(control[0], count, rounds);
    ::close(control[0]);
    int status = 0;
    ::waitpid(server, &status, 0);
    return status == 0 ? 0 : 1;
}
