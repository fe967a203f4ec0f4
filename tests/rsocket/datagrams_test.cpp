// rsockets of datagrams: between two of them, and with peers that a test plays by a plain UDP
// socket.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace feroce::rsocket_datagrams {

constexpr int kLimitMs = 30'000;
constexpr std::size_t kMost = 2020;

template <class Address>
sockaddr* plain(Address& address) {
    return reinterpret_cast<sockaddr*>(&address);
}

sockaddr_in loopback() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

class Rsocket {
public:
    explicit Rsocket(int family = AF_INET, int flags = 0)
        : fd_(rsocket(family, SOCK_DGRAM | flags, 0)) {
        EXPECT_GE(fd_, 0) << std::strerror(errno);
    }
    ~Rsocket() { EXPECT_EQ(rclose(fd_), 0); }
    Rsocket(const Rsocket&) = delete;
    Rsocket& operator=(const Rsocket&) = delete;
    operator int() const { return fd_; }

private:
    int fd_;
};

// Bound to the loopback address.
struct Server {
    Server() {
        EXPECT_EQ(rbind(fd, plain(address), sizeof address), 0) << std::strerror(errno);
        socklen_t length = sizeof address;
        EXPECT_EQ(rgetsockname(fd, plain(address), &length), 0);
        EXPECT_NE(address.sin_port, 0);
    }
    Rsocket fd;
    sockaddr_in address = loopback();
};

bool await(int fd, short events) {
    pollfd entry{fd, events, 0};
    return rpoll(&entry, 1, kLimitMs) == 1 && (entry.revents & events) == events;
}

struct Heard {
    std::string text;
    sockaddr_in from{};
};

Heard hear(int fd) {
    Heard heard;
    if (!await(fd, POLLIN)) return heard;
    std::array<char, 4096> room;
    socklen_t length = sizeof heard.from;
    const ssize_t size = rrecvfrom(fd, room.data(), room.size(), 0, plain(heard.from), &length);
    EXPECT_GE(size, 0) << std::strerror(errno);
    EXPECT_EQ(length, sizeof heard.from);
    if (size > 0) heard.text.assign(room.data(), static_cast<std::size_t>(size));
    return heard;
}

ssize_t say(int fd, const std::string& text, sockaddr_in to) {
    return rsendto(fd, text.data(), text.size(), 0, plain(to), sizeof to);
}

TEST(RsocketDatagrams, EachSideHearsTheOtherByName) {
    Server server;
    Rsocket client;
    for (int i = 0; i < 200; ++i) {
        const std::string question = "question " + std::to_string(i);
        ASSERT_EQ(say(client, question, server.address), static_cast<ssize_t>(question.size()));
        const Heard asked = hear(server.fd);
        ASSERT_EQ(asked.text, question);
        const std::string answer = "answer " + std::to_string(i);
        ASSERT_EQ(say(server.fd, answer, asked.from), static_cast<ssize_t>(answer.size()));
        const Heard answered = hear(client);
        ASSERT_EQ(answered.text, answer);
        ASSERT_EQ(answered.from.sin_port, server.address.sin_port);
        ASSERT_EQ(answered.from.sin_addr.s_addr, server.address.sin_addr.s_addr);
    }
}

bool hears_soon(int fd, const std::string& text, sockaddr_in* from) {
    pollfd entry{fd, POLLIN, 0};
    if (rpoll(&entry, 1, 100) != 1) return false;
    std::array<char, 64> room;
    socklen_t length = sizeof *from;
    const ssize_t size = rrecvfrom(fd, room.data(), room.size(), 0, plain(*from), &length);
    return size >= 0 && std::string(room.data(), static_cast<std::size_t>(size)) == text;
}

// Also run with a fault after which a queue pair is useless.
TEST(RsocketDatagrams, AnExchangeGoesOnAfterDatagramsWereLost) {
    constexpr int kInARow = 200;
    constexpr int kMostLost = 60;
    Server server;
    Rsocket client;
    int in_a_row = 0;
    int lost = 0;
    for (int i = 0; in_a_row < kInARow && lost < kMostLost; ++i) {
        const std::string text = "round " + std::to_string(i);
        sockaddr_in from{};
        ASSERT_EQ(say(client, text, server.address), static_cast<ssize_t>(text.size()));
        bool done = hears_soon(server.fd, text, &from);
        if (done) {
            ASSERT_EQ(say(server.fd, text, from), static_cast<ssize_t>(text.size()));
            done = hears_soon(client, text, &from);
        }
        in_a_row = done ? in_a_row + 1 : 0;
        lost += done ? 0 : 1;
    }
    EXPECT_EQ(in_a_row, kInARow) << lost << " were lost";
}

TEST(RsocketDatagrams, EverySizeUpToTheMostArrivesAndMoreIsRefused) {
    Server server;
    Rsocket client;
    for (std::size_t size = 0; size <= kMost; size = size < 4 ? size + 1 : size + 63) {
        const std::string text(size, static_cast<char>('a' + size % 26));
        ASSERT_EQ(say(client, text, server.address), static_cast<ssize_t>(size));
        ASSERT_EQ(hear(server.fd).text, text);
    }
    EXPECT_EQ(say(client, std::string(kMost + 1, 'x'), server.address), -1);
    EXPECT_EQ(errno, EMSGSIZE);
}

TEST(RsocketDatagrams, IPv6AndMappedIPv4MeetToo) {
    Rsocket six(AF_INET6);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    ASSERT_EQ(rbind(six, plain(any), sizeof any), 0) << std::strerror(errno);
    socklen_t length = sizeof any;
    ASSERT_EQ(rgetsockname(six, plain(any), &length), 0);
    Rsocket four;
    sockaddr_in to = loopback();
    to.sin_port = any.sin6_port;
    Rsocket other(AF_INET6);
    any.sin6_addr = in6addr_loopback;
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(say(four, "four", to), 4);
        std::array<char, 16> room;
        sockaddr_in6 from{};
        socklen_t size = sizeof from;
        ASSERT_TRUE(await(six, POLLIN));
        ASSERT_EQ(rrecvfrom(six, room.data(), room.size(), 0, plain(from), &size), 4);
        EXPECT_TRUE(IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
        ASSERT_EQ(rsendto(six, "back", 4, 0, plain(from), size), 4) << std::strerror(errno);
        EXPECT_EQ(hear(four).text, "back");
        ASSERT_EQ(rsendto(other, "six", 3, 0, plain(any), sizeof any), 3) << std::strerror(errno);
        ASSERT_TRUE(await(six, POLLIN));
        ASSERT_EQ(rrecvfrom(six, room.data(), room.size(), 0, plain(from), &size), 3);
        EXPECT_TRUE(IN6_IS_ADDR_LOOPBACK(&from.sin6_addr));
    }
}

TEST(RsocketDatagrams, AConnectedOneHearsItsPeerOnly) {
    Server server;
    Server client;
    Rsocket stranger;
    ASSERT_EQ(rconnect(client.fd, plain(server.address), sizeof server.address), 0);
    ASSERT_EQ(say(stranger, "stranger", client.address), 8);
    ASSERT_EQ(rsend(client.fd, "hello", 5, 0), 5);
    const Heard asked = hear(server.fd);
    EXPECT_EQ(asked.text, "hello");
    EXPECT_EQ(asked.from.sin_port, client.address.sin_port);
    ASSERT_EQ(say(server.fd, "welcome", asked.from), 7);
    EXPECT_EQ(hear(client.fd).text, "welcome");
    std::array<char, 16> room;
    EXPECT_EQ(rrecv(client.fd, room.data(), room.size(), MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    ASSERT_EQ(rgetpeername(client.fd, plain(peer), &length), 0);
    EXPECT_EQ(peer.sin_port, server.address.sin_port);
}

TEST(RsocketDatagrams, OneThatIsConnectedToAnyAddressHearsItsPeer) {
    Server server;
    Rsocket client;
    sockaddr_in any = server.address;
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    ASSERT_EQ(rconnect(client, plain(any), sizeof any), 0) << std::strerror(errno);
    for (int i = 0; i < 20; ++i) {
        ASSERT_EQ(rsend(client, "hello", 5, 0), 5) << std::strerror(errno);
        const Heard asked = hear(server.fd);
        ASSERT_EQ(asked.text, "hello");
        ASSERT_EQ(say(server.fd, "welcome", asked.from), 7);
        ASSERT_EQ(hear(client).text, "welcome");
    }
}

TEST(RsocketDatagrams, AfterItsConnectionIsDissolvedItIsHeardByItsNewName) {
    Server server;
    Rsocket client;
    sockaddr_in none{};
    none.sin_family = AF_UNSPEC;
    for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(rconnect(client, plain(server.address), sizeof server.address), 0);
        for (int i = 0; i < 5; ++i) {
            ASSERT_EQ(rsend(client, "hello", 5, 0), 5) << std::strerror(errno);
            const Heard asked = hear(server.fd);
            ASSERT_EQ(asked.text, "hello");
            sockaddr_in name{};
            socklen_t length = sizeof name;
            ASSERT_EQ(rgetsockname(client, plain(name), &length), 0);
            ASSERT_EQ(asked.from.sin_port, name.sin_port);
            ASSERT_EQ(say(server.fd, "welcome", asked.from), 7);
            ASSERT_EQ(hear(client).text, "welcome");
        }
        ASSERT_EQ(rconnect(client, plain(none), sizeof none), 0) << std::strerror(errno);
    }
}

TEST(RsocketDatagrams, VectorsPeekAndTruncation) {
    Server server;
    Rsocket client;
    std::string one = "first ";
    std::string two = "second";
    std::array<iovec, 2> pieces{{{one.data(), one.size()}, {two.data(), two.size()}}};
    msghdr out{};
    out.msg_name = &server.address;
    out.msg_namelen = sizeof server.address;
    out.msg_iov = pieces.data();
    out.msg_iovlen = pieces.size();
    ASSERT_EQ(rsendmsg(client, &out, 0), 12) << std::strerror(errno);
    ASSERT_TRUE(await(server.fd, POLLIN));
    std::array<char, 8> room{};
    EXPECT_EQ(rrecv(server.fd, room.data(), room.size(), MSG_PEEK | MSG_TRUNC), 12);
    sockaddr_in from{};
    iovec place{room.data(), room.size()};
    msghdr in{};
    in.msg_name = &from;
    in.msg_namelen = sizeof from;
    in.msg_iov = &place;
    in.msg_iovlen = 1;
    ASSERT_EQ(rrecvmsg(server.fd, &in, 0), 8);
    EXPECT_EQ(in.msg_flags, MSG_TRUNC);
    EXPECT_EQ(std::string(room.data(), room.size()), "first se");
    EXPECT_EQ(from.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    EXPECT_EQ(rrecv(server.fd, room.data(), room.size(), MSG_DONTWAIT), -1);  // The rest is gone.
}

TEST(RsocketDatagrams, AReceiverThatSleepsHearsWhatAnotherThreadCausedToCome) {
    Server server;
    Server client;
    std::thread sleeper([&] {
        std::array<char, 16> room;
        for (int i = 0; i < 100; ++i) EXPECT_EQ(rrecv(client.fd, room.data(), room.size(), 0), 4);
    });
    for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(say(client.fd, "ping", server.address), 4);
        const Heard asked = hear(server.fd);
        ASSERT_EQ(asked.text, "ping");
        ASSERT_EQ(say(server.fd, "pong", asked.from), 4);
    }
    sleeper.join();
}

TEST(RsocketDatagrams, TimeoutsAndNonBlockingEndAReceive) {
    Server server;
    std::array<char, 16> room;
    const timeval brief{0, 20'000};
    ASSERT_EQ(rsetsockopt(server.fd, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief), 0);
    EXPECT_EQ(rrecv(server.fd, room.data(), room.size(), 0), -1);
    EXPECT_EQ(errno, EAGAIN);
    Rsocket other(AF_INET, SOCK_NONBLOCK);
    EXPECT_EQ(rrecv(other, room.data(), room.size(), 0), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST(RsocketDatagrams, WhatAStreamHasIsRefused) {
    Rsocket fd;
    EXPECT_EQ(rlisten(fd, 1), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(raccept(fd, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(rsend(fd, "x", 1, 0), -1);
    EXPECT_EQ(errno, EDESTADDRREQ);
    EXPECT_EQ(rsocket(AF_INET, SOCK_DGRAM, IPPROTO_TCP), -1);
    EXPECT_EQ(errno, EPROTONOSUPPORT);
    int type = 0;
    socklen_t length = sizeof type;
    ASSERT_EQ(rgetsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length), 0);
    EXPECT_EQ(type, SOCK_DGRAM);
    ASSERT_EQ(rgetsockopt(fd, SOL_RDMA, RDMA_RQSIZE, &type, &length), 0);
    EXPECT_EQ(type, 384);
}

// ---- a peer that the test plays

class Scripted {
public:
    explicit Scripted(in_addr_t at = INADDR_LOOPBACK)
        : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        address.sin_addr.s_addr = htonl(at);
        EXPECT_EQ(::bind(fd_, plain(address), sizeof address), 0);
        socklen_t length = sizeof address;
        EXPECT_EQ(::getsockname(fd_, plain(address), &length), 0);
    }
    ~Scripted() { ::close(fd_); }
    Scripted(const Scripted&) = delete;
    Scripted& operator=(const Scripted&) = delete;

    // Empty if nothing comes.
    std::string hear(int wait_ms, sockaddr_in* from = nullptr) const {
        pollfd entry{fd_, POLLIN, 0};
        if (::poll(&entry, 1, wait_ms) != 1) return {};
        std::array<char, 4096> room;
        sockaddr_in who{};
        socklen_t length = sizeof who;
        const ssize_t size = ::recvfrom(fd_, room.data(), room.size(), 0, plain(who), &length);
        if (from != nullptr) *from = who;
        return size < 0 ? std::string() : std::string(room.data(), static_cast<std::size_t>(size));
    }
    void say(const std::string& bytes, sockaddr_in to) const {
        EXPECT_EQ(::sendto(fd_, bytes.data(), bytes.size(), 0, plain(to), sizeof to),
                  static_cast<ssize_t>(bytes.size()));
    }

    sockaddr_in address = loopback();

private:
    int fd_;
};

constexpr std::size_t kHeader = 16;

// A header of 127.0.0.1: kind 0 is data, 7 tells of a queue pair.
std::string header(char kind, std::uint32_t queue_pair) {
    std::string bytes("\x55\x55\x55\x55\x04\0\x10\0\0\0\0\0\x7f\0\0\x01", kHeader);
    bytes[5] = kind;
    bytes[9] = static_cast<char>(queue_pair >> 16);
    bytes[10] = static_cast<char>(queue_pair >> 8);
    bytes[11] = static_cast<char>(queue_pair);
    return bytes;
}

TEST(RsocketDatagramsScripted, DataIsDeliveredAndAnsweredByOurQueuePair) {
    const Scripted peer;
    Server server;
    peer.say(header(0, 0x1234) + "payload", server.address);
    const Heard heard = hear(server.fd);
    EXPECT_EQ(heard.text, "payload");
    EXPECT_EQ(heard.from.sin_port, peer.address.sin_port);
    const std::string answer = peer.hear(kLimitMs);
    ASSERT_EQ(answer.size(), kHeader);
    EXPECT_EQ(answer.substr(0, 8), header(7, 0).substr(0, 8));
    EXPECT_NE(answer.substr(8, 4), std::string(4, '\0'));
    EXPECT_EQ(answer.substr(12), header(7, 0).substr(12));
}

TEST(RsocketDatagramsScripted, DatagramsGoByUdpUntilTheQueuePairIsKnown) {
    const Scripted peer;
    Server client;
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(say(client.fd, "early", peer.address), 5);
        const std::string packet = peer.hear(kLimitMs);
        ASSERT_EQ(packet.size(), kHeader + 5);
        EXPECT_EQ(packet[5], 0);
        EXPECT_EQ(packet.substr(kHeader), "early");
    }
    // A queue pair that no process has: what goes there arrives nowhere.
    peer.say(header(7, 0xfffff0), client.address);
    bool by_queue_pair = false;
    for (int i = 0; i < 200 && !by_queue_pair; ++i) {
        ASSERT_EQ(say(client.fd, "late", peer.address), 4);
        by_queue_pair = peer.hear(100).empty();
    }
    EXPECT_TRUE(by_queue_pair);
    // It is asked again when it was not heard of for long.
    bool asked_again = false;
    for (int i = 0; i < 100 && !asked_again; ++i) {
        ASSERT_EQ(say(client.fd, "later", peer.address), 5);
        asked_again = !peer.hear(100).empty();
    }
    EXPECT_TRUE(asked_again);
}

// More senders than the table of peers has entries, each of its own address.
TEST(RsocketDatagramsScripted, ManyForgedSendersDoNotKeepALaterPeerOnUdp) {
    constexpr std::uint32_t kSenders = 4200;
    Server server;
    for (std::uint32_t i = 0; i < kSenders; ++i) {
        const Scripted forged(INADDR_LOOPBACK + 256 + i);
        forged.say(header(7, 0xfffff0), server.address);
        pollfd entry{server.fd, POLLIN, 0};
        if (i % 32 == 0) {
            EXPECT_EQ(rpoll(&entry, 1, 0), 0);
        }
    }
    const Scripted peer;
    bool by_queue_pair = false;
    for (int i = 0; i < 50 && !by_queue_pair; ++i) {
        peer.say(header(7, 0xfffff0), server.address);
        ASSERT_EQ(say(server.fd, "late", peer.address), 4);
        by_queue_pair = peer.hear(100).empty();
    }
    EXPECT_TRUE(by_queue_pair);
}

TEST(RsocketDatagramsScripted, WhatIsNoMessageIsNotDelivered) {
    const Scripted peer;
    Server server;
    const std::string good = header(0, 1) + "good";
    for (std::size_t cut = 0; cut < kHeader; ++cut) peer.say(good.substr(0, cut), server.address);
    for (const std::size_t at : {0U, 4U, 5U, 6U}) {
        std::string wrong = good;
        wrong[at] = 0x33;
        peer.say(wrong, server.address);
    }
    peer.say(good, server.address);
    EXPECT_EQ(hear(server.fd).text, "good");
    std::array<char, 16> room;
    EXPECT_EQ(rrecv(server.fd, room.data(), room.size(), MSG_DONTWAIT), -1);
}

TEST(RsocketDatagramsScripted, APeerThatTellsAnotherAddressKeepsToUdp) {
    const Scripted peer;
    Server server;
    std::string other = header(0, 0xfffff0) + "data";
    other[15] = 9;  // 127.0.0.9
    peer.say(other, server.address);
    const Heard heard = hear(server.fd);
    ASSERT_EQ(heard.text, "data");
    EXPECT_EQ(peer.hear(kLimitMs).size(), kHeader);
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(say(server.fd, "answer", heard.from), 6);
        EXPECT_EQ(peer.hear(kLimitMs).size(), kHeader + 6);
    }
}

TEST(RsocketDatagramsScripted, AFloodIsBoundedAndTheSocketLives) {
    const Scripted peer;
    Server server;
    for (int i = 0; i < 3000; ++i) {
        peer.say(header(0, 0x77) + "flood", server.address);
        if (i % 50 == 0) await(server.fd, POLLIN);
    }
    std::array<char, 16> room;
    int count = 0;
    while (rrecv(server.fd, room.data(), room.size(), MSG_DONTWAIT) == 5) ++count;
    EXPECT_GT(count, 0);
    EXPECT_LT(count, 3000);
    peer.say(header(0, 0x77) + "after", server.address);
    EXPECT_EQ(hear(server.fd).text, "after");
}

}  // namespace feroce::rsocket_datagrams
