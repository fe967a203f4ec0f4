// The same requests over kernel TCP on loopback: an epoll server that takes whatever has come,
// answers all of it with one writev, and a client that does likewise; TCP_NODELAY, data is neither
// copied nor looked at. As the loops of sessions do, both look for a while before they sleep.
//     tcp_requests read|write SIZE DEPTH SECONDS, or tcp_requests stream SIZE DEPTH SECONDS for
// the same bytes without requests: the server only reads.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "workload.hpp"

using namespace feroce;
using namespace feroce::bench;

namespace {

constexpr std::size_t kBuffer = 4 << 20;
constexpr double kWarmUp = 0.2;
constexpr double kSpin = 200e-6;
constexpr int kSleepMs = 100;

struct Header {
    std::uint32_t write = 0;
    std::uint32_t id = 0;      // Comes back with the answer.
    std::uint32_t size = 0;    // Of the data: behind a write's request, or a read's answer.
    std::uint32_t answer = 0;  // Of the request's direction: whether it is an answer.

    std::uint32_t behind() const { return (write != 0) != (answer != 0) ? size : 0; }
};

std::vector<std::byte>& payload() {
    static std::vector<std::byte> bytes(1 << 20);
    return bytes;
}

// Headers and data that wait to be written, and the input that is not parsed yet.
class Stream {
public:
    explicit Stream(int fd) : fd_(fd), input_(kBuffer) {
        const int one = 1;
        ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        epoll_event event{EPOLLIN, {}};
        ::epoll_ctl(set_, EPOLL_CTL_ADD, fd_, &event);
    }

    ~Stream() {
        ::close(fd_);
        ::close(set_);
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    void put(const Header& header) {
        headers_.push_back(header);
        iovs_.push_back({&headers_.back(), sizeof header});
        if (header.behind() > 0) iovs_.push_back({payload().data(), header.behind()});
    }
    // As much as the socket takes; false if the peer is gone.
    bool flush() {
        while (first_ < iovs_.size()) {
            const auto count = std::min<std::size_t>(iovs_.size() - first_, IOV_MAX);
            const ssize_t sent = ::writev(fd_, &iovs_[first_], static_cast<int>(count));
            if (sent < 0) return errno == EAGAIN;
            advance(static_cast<std::size_t>(sent));
        }
        iovs_.clear();
        headers_.clear();
        first_ = 0;
        return true;
    }
    // False if the peer is gone. Calls `take` for each header whose data has come.
    template <class Take>
    bool fetch(Take take) {
        const ssize_t got = ::recv(fd_, &input_[filled_], input_.size() - filled_, MSG_DONTWAIT);
        if (got == 0) return false;
        if (got < 0) return errno == EAGAIN;
        filled_ += static_cast<std::size_t>(got);
        std::size_t at = 0;
        Header header;
        while (filled_ - at >= sizeof header) {
            std::memcpy(&header, &input_[at], sizeof header);
            const std::size_t whole = sizeof header + header.behind();
            if (filled_ - at < whole) break;
            at += whole;
            take(header);
        }
        std::memmove(input_.data(), &input_[at], filled_ - at);
        filled_ -= at;
        return true;
    }
    // Until there is something to read, or room for what waits to be written.
    void wait() {
        const auto start = bench::Clock::now();
        epoll_event ready;
        while (first_ == iovs_.size() && ::epoll_wait(set_, &ready, 1, 0) == 0)
            if (seconds_since(start) > kSpin) return void(::epoll_wait(set_, &ready, 1, kSleepMs));
    }

private:
    void advance(std::size_t sent) {
        while (sent > 0) {
            iovec& iov = iovs_[first_];
            const std::size_t part = std::min(sent, iov.iov_len);
            iov.iov_base = static_cast<std::byte*>(iov.iov_base) + part;
            iov.iov_len -= part;
            sent -= part;
            if (iov.iov_len == 0) ++first_;
        }
    }

    int fd_;
    int set_ = ::epoll_create1(0);
    std::deque<Header> headers_;  // Stay where they are until written.
    std::vector<iovec> iovs_;
    std::size_t first_ = 0;  // Of those not written yet.
    std::vector<std::byte> input_;
    std::size_t filled_ = 0;
};

int listen_on_loopback(std::uint16_t& port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    require(::bind(fd, reinterpret_cast<sockaddr*>(&at), size) == 0, "bind");
    require(::listen(fd, 1) == 0, "listen");
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
    port = ntohs(at.sin_port);
    return fd;
}

int connect_to_loopback(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port);
    require(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0, "connect");
    return fd;
}

void serve(const Channel& parent) {
    std::uint16_t port = 0;
    const int listener = listen_on_loopback(port);
    parent.send(port);
    Stream stream(::accept(listener, nullptr, nullptr));
    for (;;) {
        stream.wait();
        const bool there = stream.fetch([&](Header header) {
            header.answer = 1;
            stream.put(header);
        });
        if (!there || !stream.flush()) return;
    }
}

void ask(const Channel& child, const Workload& load) {
    Stream stream(connect_to_loopback(child.receive<std::uint16_t>()));
    std::vector<bench::Clock::time_point> begun(load.depth);
    const auto submit = [&](std::uint32_t id) {
        begun[id] = bench::Clock::now();
        stream.put({load.write ? 1u : 0u, id, load.size, 0});
    };
    std::uint64_t requests = 0;
    rtrs::Histogram latency;
    const auto answered = [&](const Header& header) {
        ++requests;
        latency.record(bench::Clock::now() - begun[header.id]);
        submit(header.id);
    };
    for (std::uint32_t id = 0; id < load.depth; ++id) submit(id);
    const auto run_for = [&](double seconds) {
        const auto start = bench::Clock::now();
        while (seconds_since(start) < seconds) {
            require(stream.flush(), "the server is gone");
            stream.wait();
            require(stream.fetch(answered), "the server is gone");
        }
        return seconds_since(start);
    };
    run_for(kWarmUp);
    requests = 0;
    latency = {};
    const double seconds = run_for(load.seconds);
    print_requests(load, static_cast<double>(requests), seconds, latency);
}

void serve_stream(const Channel& parent) {
    std::uint16_t port = 0;
    const int listener = listen_on_loopback(port);
    parent.send(port);
    const int fd = ::accept(listener, nullptr, nullptr);
    std::vector<std::byte> buffer(kBuffer);
    while (::recv(fd, buffer.data(), buffer.size(), 0) > 0) continue;
}

void stream_out(const Channel& child, const Workload& load) {
    const int fd = connect_to_loopback(child.receive<std::uint16_t>());
    const auto start = bench::Clock::now();
    double sent = 0;
    while (seconds_since(start) < load.seconds) {
        const ssize_t part = ::send(fd, payload().data(), load.size, 0);
        require(part > 0, "send");
        sent += static_cast<double>(part);
    }
    print_stream(sent, seconds_since(start), 0);
    ::close(fd);
}

}  // namespace

int main(int count, char** words) {
    std::signal(SIGPIPE, SIG_IGN);
    const Workload load = Workload::parse(count, words);
    if (std::string(words[1]) == "stream")
        run_pair([&](const Channel& child) { stream_out(child, load); }, serve_stream);
    else
        run_pair([&](const Channel& child) { ask(child, load); }, serve);
}
