// The same requests over bare UDP on loopback: what sockets leave for a transport that must copy
// the data and check it on either side, as RoCE does, and does nothing else. Packets of up to 4 KiB
// of data, segmented sends and merged receives, one batch for whatever has come; each packet has a
// CRC-32, the data of each request lies in memory of its own at both ends. Nothing is acknowledged:
// a request whose packets were lost is sent again when nothing has come for long.
//     udp_requests read|write SIZE DEPTH SECONDS
#include <isa-l/crc.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "workload.hpp"

using namespace feroce;
using namespace feroce::bench;

namespace {

constexpr std::size_t kData = 4096;         // Of a packet, at most.
constexpr std::size_t kRequestHeader = 64;  // As long as RoCE's and the session's headers together.
constexpr std::size_t kAnswerHeader = 16;
constexpr std::size_t kRunBytes = 65000;  // The kernel segments less than 64 KiB at once,
constexpr std::size_t kRunPackets = 64;   // in so many packets.
constexpr int kBatch = 64;                // Receives before what came is answered.
constexpr int kBuffer = 8 << 20;          // Of a socket.
constexpr double kWarmUp = 0.2;
constexpr double kSpin = 200e-6;
constexpr int kSleepMs = 20;

struct Header {
    std::uint32_t crc = 0;  // Of all behind it.
    std::uint32_t id = 0;
    std::uint32_t offset = 0;  // Of the packet's data in that of its request.
    std::uint16_t round = 0;   // Grows with every use of the id: old packets are told by it.
    std::uint8_t write = 0;
    std::uint8_t answer = 0;

    std::size_t size() const { return answer != 0 ? kAnswerHeader : kRequestHeader; }
};
static_assert(sizeof(Header) == kAnswerHeader);

std::uint32_t crc_of(std::span<const std::byte> packet) {
    const std::span<const std::byte> counted = packet.subspan(sizeof(Header::crc));
    return ::crc32_gzip_refl(0, reinterpret_cast<const unsigned char*>(counted.data()),
                             counted.size());
}

// Where requests have their data: an area of its own for each.
class Store {
public:
    explicit Store(const Workload& load) : size_(load.size), bytes_(load.depth * size_) {}
    std::span<std::byte> of(std::uint32_t id) {
        return std::span(bytes_).subspan(id * size_, size_);
    }

private:
    std::size_t size_;
    std::vector<std::byte> bytes_;
};

class Socket {
public:
    Socket() : fd_(::socket(AF_INET, SOCK_DGRAM, 0)), input_(64 << 10) {
        const int buffer = kBuffer, one = 1, never_fragment = IP_PMTUDISC_DO;
        if (::setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0)
            ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
        ::setsockopt(fd_, IPPROTO_IP, IP_MTU_DISCOVER, &never_fragment, sizeof never_fragment);
        require(::setsockopt(fd_, IPPROTO_UDP, UDP_GRO, &one, sizeof one) == 0, "UDP_GRO");
        sockaddr_in at = loopback(0);
        require(::bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0, "bind");
        run_.reserve(kRunBytes);
    }
    ~Socket() { ::close(fd_); }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    std::uint16_t port() const {
        sockaddr_in at{};
        socklen_t size = sizeof at;
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size);
        return ntohs(at.sin_port);
    }
    void set_peer(std::uint16_t port) { peer_ = loopback(port); }

    // Builds a packet in the run that is sent next. Within a run only the last may be shorter.
    void put(Header header, std::span<const std::byte> data) {
        const std::size_t size = header.size() + data.size();
        const bool last_is_full = run_.size() == packets_ * segment_;
        if (packets_ > 0 && (!last_is_full || size > segment_ || packets_ == kRunPackets ||
                             run_.size() + size > kRunBytes))
            flush();
        if (packets_++ == 0) segment_ = size;
        const std::size_t at = run_.size();
        run_.resize(at + size);
        const std::span<std::byte> packet = std::span(run_).subspan(at);
        std::memcpy(packet.data(), &header, sizeof header);
        if (!data.empty()) std::memcpy(&packet[header.size()], data.data(), data.size());
        const std::uint32_t crc = crc_of(packet);
        std::memcpy(packet.data(), &crc, sizeof crc);
    }

    void flush() {
        if (packets_ == 0) return;
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> control{};
        iovec iov{run_.data(), run_.size()};
        msghdr message{};
        message.msg_name = &peer_;
        message.msg_namelen = sizeof peer_;
        message.msg_iov = &iov;
        message.msg_iovlen = 1;
        if (packets_ > 1) {
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            cmsghdr* const c = CMSG_FIRSTHDR(&message);
            c->cmsg_level = SOL_UDP;
            c->cmsg_type = UDP_SEGMENT;
            c->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
            const auto segment = static_cast<std::uint16_t>(segment_);
            std::memcpy(CMSG_DATA(c), &segment, sizeof segment);
        }
        require(::sendmsg(fd_, &message, 0) >= 0 || errno == ECONNREFUSED, "sendmsg");
        run_.clear();
        packets_ = 0;
    }

    // Calls take(header, data) for each packet that has come. False if there was none.
    template <class Take>
    bool fetch(Take take) {
        int batch = 0;
        for (; batch < kBatch; ++batch) {
            alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
            iovec iov{input_.data(), input_.size()};
            msghdr message{};
            message.msg_iov = &iov;
            message.msg_iovlen = 1;
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            const ssize_t got = ::recvmsg(fd_, &message, MSG_DONTWAIT);
            if (got <= 0) break;
            const auto size = static_cast<std::size_t>(got);
            const std::size_t segment = segment_of(message, size);
            for (std::size_t at = 0; at < size; at += segment)
                open(std::span(input_).subspan(at, std::min(segment, size - at)), take);
        }
        return batch > 0;
    }

    // Until something has come, or for long nothing has: then false.
    bool wait() const {
        const auto start = bench::Clock::now();
        pollfd look{fd_, POLLIN, 0};
        while (::poll(&look, 1, 0) == 0)
            if (seconds_since(start) > kSpin) return ::poll(&look, 1, kSleepMs) > 0;
        return true;
    }

private:
    static sockaddr_in loopback(std::uint16_t port) {
        sockaddr_in out{};
        out.sin_family = AF_INET;
        out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        out.sin_port = htons(port);
        return out;
    }
    // Of the packets that the kernel has merged into one datagram.
    static std::size_t segment_of(msghdr& message, std::size_t size) {
        int segment = 0;
        for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c))
            if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO)
                std::memcpy(&segment, CMSG_DATA(c), sizeof segment);
        return segment > 0 ? static_cast<std::size_t>(segment) : size;
    }
    template <class Take>
    static void open(std::span<const std::byte> packet, Take& take) {
        Header header;
        if (packet.size() < sizeof header) return;
        std::memcpy(&header, packet.data(), sizeof header);
        if (packet.size() < header.size() || header.crc != crc_of(packet)) return;
        take(header, packet.subspan(header.size()));
    }

    int fd_;
    sockaddr_in peer_{};
    std::vector<std::byte> run_;  // Packets back to back,
    std::size_t packets_ = 0;
    std::size_t segment_ = 0;  // each but the last so long.
    std::vector<std::byte> input_;
};

// The data of a request or answer, packet by packet.
void put_data(Socket& socket, Header header, std::span<const std::byte> data) {
    for (std::size_t at = 0; at < data.size(); at += kData) {
        header.offset = static_cast<std::uint32_t>(at);
        socket.put(header, data.subspan(at, std::min(kData, data.size() - at)));
    }
}

// How much of each request's data has come, in which round of it.
class Arrivals {
public:
    explicit Arrivals(const Workload& load) : size_(load.size), entries_(load.depth) {}

    // Stores what a packet brought. True if it was the last one.
    bool take(const Header& header, std::span<const std::byte> data, Store& store) {
        if (header.id >= entries_.size() || header.offset + data.size() > size_) return false;
        Entry& entry = entries_[header.id];
        if (entry.round != header.round) entry = {header.round, 0};
        std::memcpy(&store.of(header.id)[header.offset], data.data(), data.size());
        entry.bytes += data.size();
        return entry.bytes == size_;
    }

private:
    struct Entry {
        std::uint16_t round = 0;
        std::size_t bytes = 0;
    };
    std::size_t size_;
    std::vector<Entry> entries_;
};

void serve(const Channel& parent, const Workload& load) {
    Socket socket;
    parent.send(socket.port());
    socket.set_peer(parent.receive<std::uint16_t>());
    Store store(load);
    Arrivals arrivals(load);
    const auto answer = [&](Header header, std::span<const std::byte> data) {
        if (header.id >= load.depth) return;
        if (header.write != 0 && !arrivals.take(header, data, store)) return;
        header.answer = 1;
        if (header.write != 0)
            socket.put(header, {});
        else
            put_data(socket, header, store.of(header.id));
    };
    while (!parent.readable())
        for (int i = 0; i < 50; ++i) {
            if (socket.fetch(answer))
                socket.flush();
            else
                socket.wait();
        }
}

class Asker {
public:
    Asker(Socket& socket, const Workload& load)
        : socket_(socket), load_(load), store_(load), arrivals_(load), open_(load.depth) {}

    void submit(std::uint32_t id) {
        ++open_[id].round;
        open_[id].begun = bench::Clock::now();
        send(id);
    }
    double run_for(double seconds) {
        const auto start = bench::Clock::now();
        while (seconds_since(start) < seconds) {
            socket_.flush();
            const bool some = socket_.fetch([this](const Header& header, auto data) {
                if (header.id < load_.depth && header.round == open_[header.id].round)
                    answered(header, data);
            });
            // What was lost is among those that are open.
            if (!some && !socket_.wait())
                for (std::uint32_t id = 0; id < load_.depth; ++id) ++open_[id].round, send(id);
        }
        return seconds_since(start);
    }

    std::uint64_t requests = 0;
    rtrs::Histogram latency;

private:
    void send(std::uint32_t id) {
        const Header header{.id = id,
                            .round = open_[id].round,
                            .write = static_cast<std::uint8_t>(load_.write ? 1 : 0)};
        if (load_.write)
            put_data(socket_, header, store_.of(id));
        else
            socket_.put(header, {});
    }
    void answered(const Header& header, std::span<const std::byte> data) {
        if (!load_.write && !arrivals_.take(header, data, store_)) return;
        ++requests;
        latency.record(bench::Clock::now() - open_[header.id].begun);
        submit(header.id);
    }

    struct Open {
        std::uint16_t round = 0;
        bench::Clock::time_point begun;
    };
    Socket& socket_;
    const Workload& load_;
    Store store_;
    Arrivals arrivals_;
    std::vector<Open> open_;  // By id.
};

void ask(const Channel& child, const Workload& load) {
    Socket socket;
    socket.set_peer(child.receive<std::uint16_t>());
    child.send(socket.port());
    Asker asker(socket, load);
    for (std::uint32_t id = 0; id < load.depth; ++id) asker.submit(id);
    asker.run_for(kWarmUp);
    asker.requests = 0;
    asker.latency = {};
    const double seconds = asker.run_for(load.seconds);
    print_requests(load, static_cast<double>(asker.requests), seconds, asker.latency);
    child.send('x');
}

}  // namespace

int main(int count, char** words) {
    const Workload load = Workload::parse(count, words);
    run_pair([&](const Channel& child) { ask(child, load); },
             [&](const Channel& parent) { serve(parent, load); });
}
