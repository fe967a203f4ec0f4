// NBD as its clients speak it, byte by byte, with a disk of a real server behind it. With clients
// of others: tests/block/nbd_test.py.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>

#include "base/bytes.hpp"
#include "block/nbd/server.hpp"
#include "block/test_server.hpp"

namespace feroce::block {
namespace {

using namespace std::chrono_literals;
using nbd::Command;
using nbd::Negotiation;
using nbd::Option;

class Words {
public:
    Words& u16(std::uint16_t v) { return number<2>(v); }
    Words& u32(std::uint32_t v) { return number<4>(v); }
    Words& u64(std::uint64_t v) { return number<8>(v); }
    Words& bytes(const Bytes& more) {
        out.insert(out.end(), more.begin(), more.end());
        return *this;
    }
    Bytes out;

private:
    template <int size>
    Words& number(std::uint64_t v) {
        for (int i = size; i-- > 0;) out.push_back(static_cast<std::byte>(v >> 8 * i & 0xff));
        return *this;
    }
};

Bytes option(std::uint32_t what, const Bytes& data = {}) {
    return Words()
        .u64(nbd::kOptionMagic)
        .u32(what)
        .u32(static_cast<std::uint32_t>(data.size()))
        .bytes(data)
        .out;
}

Bytes option(Option what, const Bytes& data = {}) {
    return option(static_cast<std::uint32_t>(what), data);
}

const Bytes kAnyName = Words().u32(0).u16(0).out;
const Bytes kHello = Words().u32(nbd::kFixedNewstyle | nbd::kNoZeroes).out;

Bytes together(const std::vector<Bytes>& parts) {
    Words out;
    for (const Bytes& part : parts) out.bytes(part);
    return out.out;
}

Bytes answer(Option to, std::uint32_t kind, const Bytes& data = {}) {
    return Words()
        .u64(nbd::kOptionReplyMagic)
        .u32(static_cast<std::uint32_t>(to))
        .u32(kind)
        .u32(static_cast<std::uint32_t>(data.size()))
        .bytes(data)
        .out;
}

// What a negotiation says to these bytes, which come `step` at a time.
Bytes said(Negotiation& negotiation, const Bytes& heard, std::size_t step = 1 << 20) {
    const nbd::ExportInfo disk{.size = 1 << 20, .flags = 0x2d};
    Bytes waiting;
    for (std::size_t at = 0; at < heard.size(); at += step) {
        const auto begin = heard.begin() + static_cast<std::ptrdiff_t>(at);
        const std::size_t count = std::min(step, heard.size() - at);
        waiting.insert(waiting.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
        for (;;) {
            const std::size_t used = negotiation.take(waiting);
            waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(used));
            if (negotiation.state() != Negotiation::State::Asks) break;
            negotiation.describe(disk);
        }
    }
    return negotiation.output();
}

const Bytes kGreeting = Words()
                            .u64(nbd::kGreeting)
                            .u64(nbd::kOptionMagic)
                            .u16(nbd::kFixedNewstyle | nbd::kNoZeroes)
                            .out;

Bytes description(Option to) {
    const Bytes what = Words().u16(0).u64(1 << 20).u16(0x2d).out;
    const Bytes sizes = Words().u16(3).u32(1).u32(4096).u32(32 << 20).out;
    return together(
        {answer(to, nbd::kInfo, what), answer(to, nbd::kInfo, sizes), answer(to, nbd::kAck)});
}

TEST(NbdNegotiation, AsksAreAnswered) {
    const Bytes asked = together({kHello, option(Option::List), option(Option::List, Bytes(1)),
                                  option(8), option(Option::Info, kAnyName), option(0xffff'ffff),
                                  option(Option::Go, kAnyName)});
    const Bytes refused =
        Words().u64(nbd::kOptionReplyMagic).u32(8).u32(nbd::kUnsupported).u32(0).out;
    const Bytes strange =
        Words().u64(nbd::kOptionReplyMagic).u32(0xffff'ffff).u32(nbd::kUnsupported).u32(0).out;
    const Bytes wanted =
        together({kGreeting, answer(Option::List, nbd::kServer, Bytes(4)),
                  answer(Option::List, nbd::kAck), answer(Option::List, nbd::kInvalid), refused,
                  description(Option::Info), strange, description(Option::Go)});
    for (const std::size_t step : {std::size_t{1}, std::size_t{7}, asked.size()}) {
        Negotiation negotiation;
        EXPECT_EQ(said(negotiation, asked, step), wanted) << step << " bytes at a time";
        EXPECT_EQ(negotiation.state(), Negotiation::State::Requests);
    }
}

TEST(NbdNegotiation, AnOldClientNamesTheExportAndBegins) {
    for (const bool zeroes : {true, false}) {
        Negotiation negotiation;
        const Bytes hello =
            Words().u32(zeroes ? nbd::kFixedNewstyle : nbd::kFixedNewstyle | nbd::kNoZeroes).out;
        const Bytes all =
            said(negotiation, together({hello, option(Option::ExportName, Bytes(5))}));
        const Bytes facts = Words().u64(1 << 20).u16(0x2d).bytes(Bytes(zeroes ? 124 : 0)).out;
        EXPECT_EQ(all, together({kGreeting, facts}));
        EXPECT_EQ(negotiation.state(), Negotiation::State::Requests);
    }
}

TEST(NbdNegotiation, WhatIsNoneEndsIt) {
    const Bytes wrong_magic = Words().u64(nbd::kOptionMagic + 1).u32(7).u32(0).out;
    const Bytes long_option =
        Words().u64(nbd::kOptionMagic).u32(7).u32(Negotiation::kOptionMax + 1).out;
    for (const Bytes& heard :
         {Words().u32(0).out, Words().u32(nbd::kFixedNewstyle | 4).out,
          together({kHello, wrong_magic}), together({kHello, long_option}),
          together({kHello, option(Option::Abort), option(Option::Go, kAnyName)})}) {
        Negotiation negotiation;
        (void)said(negotiation, heard);
        EXPECT_EQ(negotiation.state(), Negotiation::State::Over);
    }
}

TEST(NbdNegotiation, LengthsThatDoNotFitAreRefused) {
    for (const Bytes& data :
         {Bytes(), Bytes(5), Words().u32(1).u16(0).out, Words().u32(0xffff'ffff).u16(0).out,
          Words().u32(0).u16(1).out, Words().u32(0).u16(0).u16(0).out}) {
        Negotiation negotiation;
        const Bytes all = said(negotiation, together({kHello, option(Option::Go, data)}));
        EXPECT_EQ(all, together({kGreeting, answer(Option::Go, nbd::kInvalid)}));
        EXPECT_EQ(negotiation.state(), Negotiation::State::Hears);
    }
}

TEST(NbdNegotiation, ADiskThatIsNotToBeHad) {
    Negotiation negotiation;
    (void)negotiation.take(together({kHello, option(Option::Go, kAnyName)}));
    negotiation.refuse();
    EXPECT_EQ(negotiation.output(), together({kGreeting, answer(Option::Go, nbd::kUnknown)}));
    (void)negotiation.take(option(Option::ExportName));
    negotiation.refuse();
    EXPECT_EQ(negotiation.state(), Negotiation::State::Over);
}

// A client that writes and reads while the loop of the test goes on.
class NbdClient {
public:
    NbdClient(rdma::Loop& loop, const std::string& path) : loop_(loop) {
        socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::copy(path.begin(), path.end(), address.sun_path);
        EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0)
            << std::strerror(errno);
    }
    ~NbdClient() { leave(); }
    NbdClient(const NbdClient&) = delete;
    NbdClient& operator=(const NbdClient&) = delete;

    void leave() {
        if (socket_ >= 0) ::close(std::exchange(socket_, -1));
    }
    void shut() { ::shutdown(socket_, SHUT_WR); }
    // Goes on also if the other side does not read: `behind` keeps the rest.
    void send(const Bytes& bytes) {
        Bytes rest = bytes;
        until([&] {
            const ssize_t count = ::send(socket_, rest.data(), rest.size(), MSG_NOSIGNAL);
            if (count > 0) rest.erase(rest.begin(), rest.begin() + count);
            return rest.empty() || (count < 0 && errno == EPIPE);
        });
    }
    // As many bytes, or fewer if the other side has ended.
    Bytes read(std::size_t size) {
        Bytes out;
        until([&] {
            Bytes part(size - out.size());
            const ssize_t count = ::recv(socket_, part.data(), part.size(), 0);
            if (count > 0) out.insert(out.end(), part.begin(), part.begin() + count);
            return out.size() == size || count == 0 || (count < 0 && errno == ECONNRESET);
        });
        return out;
    }
    bool ended() { return read(1).empty(); }
    nbd::ExportInfo enter() {
        send(together({kHello, option(Option::Go, kAnyName)}));
        const Bytes all = read(kGreeting.size() + 20 + 12 + 20 + 14 + 20);
        nbd::ExportInfo out;
        const ByteView info = ByteView(all).subspan(kGreeting.size() + 20);
        out.size = load_be64(info.subspan<2, 8>());
        out.flags = load_be16(info.subspan<10, 2>());
        return out;
    }
    std::uint64_t ask(Command command, std::uint64_t offset, std::uint32_t length,
                      const Bytes& data = {}, std::uint16_t flags = 0) {
        send(request(command, offset, length, ++cookie_, flags));
        send(data);
        return cookie_;
    }
    static Bytes request(Command command, std::uint64_t offset, std::uint32_t length,
                         std::uint64_t cookie, std::uint16_t flags = 0) {
        return Words()
            .u32(nbd::kRequestMagic)
            .u16(flags)
            .u16(static_cast<std::uint16_t>(command))
            .u64(cookie)
            .u64(offset)
            .u32(length)
            .out;
    }
    // The error of the next reply, whose cookie is known to be the last request's.
    std::uint32_t error() {
        const Bytes head = read(nbd::Reply::kSize);
        if (head.size() != nbd::Reply::kSize) return 0xffff'ffff;
        EXPECT_EQ(load_be32(ByteView(head).first<4>()), nbd::kReplyMagic);
        last_cookie = load_be64(ByteView(head).subspan<8, 8>());
        return load_be32(ByteView(head).subspan<4, 4>());
    }
    std::uint32_t does(Command command, std::uint64_t offset, std::uint32_t length,
                       const Bytes& data = {}, std::uint16_t flags = 0) {
        const std::uint64_t cookie = ask(command, offset, length, data, flags);
        const std::uint32_t out = error();
        EXPECT_EQ(last_cookie, cookie);
        return out;
    }

    std::uint64_t last_cookie = 0;

private:
    template <class Done>
    void until(const Done& done) {
        const auto end = loop_.after(20s);
        while (!done() && loop_.now() < end) loop_.poll();
        EXPECT_LT(loop_.now(), end);
    }

    rdma::Loop& loop_;
    int socket_ = -1;
    std::uint64_t cookie_ = 0;
};

class Nbd : public ServedDisks {
protected:
    void front(const std::string& disk, AccessMode access = AccessMode::ReadWrite) {
        serve(all_kinds());
        const auto again = [this, disk, access]() -> rdma::Task<rdma::Result<Disk>> {
            ++opened;
            if (refuses) co_return rdma::Error{EACCES, "not now"};
            rtrs::SessionOptions options;
            options.port = server->port();
            co_return co_await client.open("test", here, disk, access, options);
        };
        auto started = nbd::Server::start(loop, open(disk, access), again, socket);
        ASSERT_TRUE(started) << started.error().why;
        nbds = *std::move(started);
    }
    void until_clients(std::size_t count) {
        const auto end = loop.after(20s);
        while (nbds->clients() != count && loop.now() < end) loop.poll();
        ASSERT_EQ(nbds->clients(), count);
    }

    const std::string socket = folder + "/nbd";
    const std::vector<rtrs::PathAddress> here{{"127.0.0.1"}};
    int opened = 0;
    bool refuses = false;
    std::unique_ptr<nbd::Server> nbds;
};

TEST_F(Nbd, RequestsDoWhatTheyAsk) {
    front("file");
    NbdClient nbd(loop, socket);
    const nbd::ExportInfo info = nbd.enter();
    EXPECT_EQ(info.size, kTestDiskSize);
    EXPECT_EQ(info.flags, nbd::kHasFlags | nbd::kFlushes | nbd::kFuaWorks | nbd::kTrims |
                              nbd::kZeroes | nbd::kMultiConn);
    // Larger than what is read at once, and than a request of RTRS.
    Bytes written = noise(1 << 20, 3);
    EXPECT_EQ(nbd.does(Command::Write, 4096, 1 << 20, written), 0u);
    EXPECT_EQ(nbd.does(Command::Write, 4096, 512, Bytes(512, std::byte{9}), nbd::kFua), 0u);
    std::fill_n(written.begin(), 512, std::byte{9});
    EXPECT_EQ(nbd.does(Command::Flush, 0, 0), 0u);
    EXPECT_EQ(nbd.does(Command::WriteZeroes, 8192, 4096, {}, nbd::kNoHole | nbd::kFua), 0u);
    EXPECT_EQ(nbd.does(Command::Trim, 12288, 4096, {}, nbd::kFua), 0u);
    std::fill_n(written.begin() + 4096, 8192, std::byte{});
    EXPECT_EQ(nbd.does(Command::Read, 4096, 1 << 20), 0u);
    EXPECT_EQ(nbd.read(1 << 20), written);
}

TEST_F(Nbd, WhatIsWrongIsRefusedAndHarmsNothing) {
    front("memory");
    NbdClient nbd(loop, socket);
    nbd.enter();
    const Bytes data(512);
    EXPECT_EQ(nbd.does(Command::Read, kTestDiskSize, 512), static_cast<std::uint32_t>(EINVAL));
    EXPECT_EQ(nbd.does(Command::Read, ~0ull, 512), static_cast<std::uint32_t>(EINVAL));
    EXPECT_EQ(nbd.does(Command::Read, 0, (32 << 20) + 1), static_cast<std::uint32_t>(EINVAL));
    EXPECT_EQ(nbd.does(Command::Read, 0, 0), static_cast<std::uint32_t>(EINVAL));
    EXPECT_EQ(nbd.does(Command::Read, 1, 512), static_cast<std::uint32_t>(EINVAL));  // No block.
    EXPECT_EQ(nbd.does(Command::Read, 0, 512, {}, 4), static_cast<std::uint32_t>(EINVAL));
    EXPECT_EQ(nbd.does(Command::Write, 0, 0), static_cast<std::uint32_t>(EINVAL));
    EXPECT_EQ(nbd.does(Command::Write, kTestDiskSize, 512, data),
              static_cast<std::uint32_t>(ENOSPC));
    EXPECT_EQ(nbd.does(Command::WriteZeroes, kTestDiskSize - 512, 1024),
              static_cast<std::uint32_t>(ENOSPC));
    EXPECT_EQ(nbd.does(Command::Trim, kTestDiskSize, 512), static_cast<std::uint32_t>(EINVAL));
    EXPECT_EQ(nbd.does(static_cast<Command>(5), 0, 512), static_cast<std::uint32_t>(EINVAL));
    EXPECT_EQ(nbd.does(Command::Write, 0, 512, data), 0u);
}

TEST_F(Nbd, ADiskForReadingOnly) {
    front("memory", AccessMode::ReadOnly);
    NbdClient nbd(loop, socket);
    EXPECT_NE(nbd.enter().flags & nbd::kReadOnly, 0);
    EXPECT_EQ(nbd.does(Command::Write, 0, 512, Bytes(512)), static_cast<std::uint32_t>(EPERM));
    EXPECT_EQ(nbd.does(Command::Read, 0, 512), 0u);
}

TEST_F(Nbd, WhoSpeaksNoNbdIsLeft) {
    front("memory");
    const Bytes no_request(nbd::Request::kSize);
    const Bytes endless = NbdClient::request(Command::Write, 0, (32 << 20) + 1, 1);
    const Bytes goodbye = NbdClient::request(Command::Disconnect, 0, 0, 1);
    for (const Bytes& last : {no_request, endless, goodbye}) {
        NbdClient nbd(loop, socket);
        nbd.enter();
        nbd.send(last);
        EXPECT_TRUE(nbd.ended());
    }
    NbdClient stranger(loop, socket);
    stranger.send(Bytes(100, std::byte{'x'}));
    EXPECT_EQ(stranger.read(1000), kGreeting);
    until_clients(0);
}

// Far more than are worked on at once, from a client that reads no reply before it has asked for
// all; and they come in pieces that end anywhere.
TEST_F(Nbd, ManyRequestsAreAnsweredOnceEach) {
    front("memory");
    NbdClient nbd(loop, socket);
    nbd.enter();
    constexpr std::uint32_t kCount = 2000, kSize = 512;
    const Bytes content = noise(kCount * kSize, 5);
    EXPECT_EQ(nbd.does(Command::Write, 0, kCount * kSize, content), 0u);
    Words all;
    for (std::uint32_t i = 0; i < kCount; ++i)
        all.bytes(NbdClient::request(Command::Read, i * kSize, kSize, i));
    for (std::size_t at = 0, step = 1; at < all.out.size(); at += step, step = step % 977 + 13) {
        const auto begin = all.out.begin() + static_cast<std::ptrdiff_t>(at);
        const std::size_t count = std::min(step, all.out.size() - at);
        nbd.send(Bytes(begin, begin + static_cast<std::ptrdiff_t>(count)));
    }
    std::map<std::uint64_t, int> seen;
    for (std::uint32_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(nbd.error(), 0u);
        ++seen[nbd.last_cookie];
        ASSERT_LT(nbd.last_cookie, kCount);
        const auto begin = content.begin() + static_cast<std::ptrdiff_t>(nbd.last_cookie * kSize);
        ASSERT_EQ(nbd.read(kSize), Bytes(begin, begin + kSize)) << nbd.last_cookie;
    }
    EXPECT_EQ(seen.size(), kCount);
}

TEST_F(Nbd, WhatCameBeforeTheClientShutItsSideIsAnswered) {
    front("memory");
    NbdClient nbd(loop, socket);
    nbd.enter();
    constexpr std::uint32_t kCount = 2000, kSize = 512;
    Words all;
    for (std::uint32_t i = 0; i < kCount; ++i)
        all.bytes(NbdClient::request(Command::Read, i * kSize, kSize, i));
    nbd.send(all.out);
    nbd.shut();
    constexpr std::size_t kReplies = kCount * (nbd::Reply::kSize + kSize);
    EXPECT_EQ(nbd.read(kReplies).size(), kReplies);
    EXPECT_TRUE(nbd.ended());
}

TEST_F(Nbd, MemoryThatNobodyUsesIsGivenBack) {
    serve(all_kinds());
    const Disk disk = open("memory", AccessMode::ReadWrite);
    nbd::Buffers buffers;
    buffers.use(disk.session());
    for (const std::size_t size : {4096, 64 << 10, 1 << 20, 32 << 20}) {
        std::vector<std::span<std::byte>> out;
        for (std::size_t all = 0; all < 96 << 20; all += size) out.push_back(buffers.take(size));
        EXPECT_GE(buffers.held(), 96u << 20);
        for (const auto& buffer : out) buffers.give_back(buffer);
        EXPECT_LE(buffers.held(), 64u << 20) << size;
    }
}

TEST_F(Nbd, ConnectionsShareTheDisk) {
    front("memory");
    NbdClient one(loop, socket), other(loop, socket);
    one.enter();
    other.enter();
    EXPECT_EQ(one.does(Command::Write, 4096, 512, Bytes(512, std::byte{1})), 0u);
    EXPECT_EQ(other.does(Command::Flush, 0, 0), 0u);
    EXPECT_EQ(other.does(Command::Read, 4096, 512), 0u);
    EXPECT_EQ(other.read(512), Bytes(512, std::byte{1}));
    // One goes in the middle of a write, of which nothing is done; another in that of an answer.
    one.ask(Command::Write, 4096, 512, Bytes(511, std::byte{2}));
    one.leave();
    NbdClient third(loop, socket);
    third.enter();
    third.ask(Command::Read, 0, 2 << 20);
    third.read(100);
    third.leave();
    until_clients(1);
    EXPECT_EQ(other.does(Command::Read, 4096, 512), 0u);
    EXPECT_EQ(other.read(512), Bytes(512, std::byte{1}));
    EXPECT_EQ(opened, 0);
}

TEST_F(Nbd, WhatWasAskedIsAnsweredBeforeTheEnd) {
    front("memory");
    NbdClient busy(loop, socket), idle(loop, socket), half(loop, socket);
    busy.enter();
    idle.enter();
    half.enter();
    half.ask(Command::Write, 0, 512, Bytes(100));
    busy.ask(Command::Read, 0, 4096);
    loop.poll();
    nbds->stop();
    EXPECT_TRUE(idle.ended());
    EXPECT_TRUE(half.ended());
    const Bytes rest = busy.read(1 << 20);
    EXPECT_TRUE(rest.empty() || rest.size() == nbd::Reply::kSize + 4096) << rest.size();
    until_clients(0);
    EXPECT_TRUE(nbds->over());
}

// As after an eviction: the next client has it opened again, while there was none.
TEST_F(Nbd, ADiskThatIsClosedIsOpenedAgainForANewClient) {
    front("memory");
    std::optional<NbdClient> first(std::in_place, loop, socket);
    first->enter();
    EXPECT_EQ(first->does(Command::Write, 0, 512, Bytes(512, std::byte{4})), 0u);
    expect_done(nbds->disk().close());
    NbdClient beside(loop, socket);
    beside.send(together({kHello, option(Option::Go, kAnyName)}));
    EXPECT_EQ(beside.read(kGreeting.size()), kGreeting);
    EXPECT_EQ(first->does(Command::Read, 0, 512), static_cast<std::uint32_t>(EIO));
    EXPECT_EQ(opened, 0);
    beside.leave();
    first.reset();
    until_clients(0);
    refuses = true;
    NbdClient refused(loop, socket);
    refused.send(together({kHello, option(Option::Go, kAnyName)}));
    EXPECT_EQ(refused.read(kGreeting.size() + 20),
              together({kGreeting, answer(Option::Go, nbd::kUnknown)}));
    refuses = false;
    refused.send(option(Option::Go, kAnyName));
    refused.read(20 + 12 + 20 + 14 + 20);
    EXPECT_EQ(opened, 2);
    EXPECT_EQ(refused.does(Command::Read, 0, 512), 0u);
    EXPECT_EQ(refused.read(512), Bytes(512, std::byte{4}));
}

}  // namespace
}  // namespace feroce::block
