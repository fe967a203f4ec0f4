// One end of a session against the Linux kernel's RTRS, told what to do by lines on its input; ends
// with its input.
//     session_peer server PORT [keys]        `keys`: always-invalidate mode
//     session_peer client PORT NAME ADDRESS...
// The messages are RNBD's, as far as sessions need them: the client asks for session info, the
// server answers that and holds requests to open a disk until it is told to `refuse` them.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"

using namespace feroce;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kInfoSize = 36;
enum : std::uint16_t { kInfo = 0, kInfoAnswer = 1, kOpen = 2 };
constexpr std::uint8_t kVersion = 2;

using Obey = std::function<void(const std::string& word, std::size_t number)>;

// Lines of a word and perhaps a number, until the input ends.
rdma::Task<void> read_commands(rdma::Loop& loop, Obey obey) {
    ::fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    std::string line;
    for (;;) {
        char c = 0;
        const ssize_t got = ::read(STDIN_FILENO, &c, 1);
        if (got == 0) co_return;
        if (got < 0) {
            (void)co_await loop.sleep(20ms);
        } else if (c != '\n') {
            line += c;
        } else {
            const std::size_t space = std::min(line.find(' '), line.size());
            obey(line.substr(0, space), std::strtoul(line.c_str() + space, nullptr, 10));
            std::fflush(stdout);
            line.clear();
        }
    }
}

class DiskServer {
public:
    void handle(rtrs::ServerRequest& request) {
        const ByteView message = request.message();
        const auto type = message.size() < 4 ? 0xffff : load_le16(message.first<2>());
        const ByteSpan answer = request.data();
        if (type == kInfo && message.size() == kInfoSize && answer.size() == kInfoSize) {
            std::printf("info of %s: version %d\n", request.session_name().c_str(),
                        load_u8(message.subspan<4, 1>()));
            std::fill(answer.begin(), answer.end(), std::byte{0});
            store_le16(answer.first<2>(), kInfoAnswer);
            store_u8(answer.subspan<4, 1>(), kVersion);
            request.respond();
        } else if (type == kOpen) {
            std::printf("open\n");
            held_.push_back(&request);
        } else {
            std::printf("unknown message of %zu bytes\n", message.size());
            request.respond(EINVAL);
        }
        std::fflush(stdout);
    }
    void refuse() {
        for (rtrs::ServerRequest* request : std::exchange(held_, {})) request->respond(ENOENT);
    }

private:
    std::vector<rtrs::ServerRequest*> held_;
};

int serve(std::uint16_t port, bool keys) {
    rdma::Loop loop;
    DiskServer disks;
    rtrs::ServerOptions options;
    options.port = port;
    options.always_invalidate = keys;
    auto server = rtrs::Server::open(
        loop, options, [&disks](rtrs::ServerRequest& request) { disks.handle(request); });
    if (!server) return std::fprintf(stderr, "%s\n", server.error().why.c_str()), 1;
    std::printf("listens\n");
    std::fflush(stdout);
    loop.run(read_commands(loop, [&](const std::string& word, std::size_t) {
        const rtrs::ServerStatistics now = server->statistics();
        if (word == "refuse") disks.refuse();
        if (word == "paths")
            std::printf("%zu paths, %zu sessions, %llu closed, %llu refused: %s\n", now.paths,
                        now.sessions, static_cast<unsigned long long>(now.paths_closed),
                        static_cast<unsigned long long>(now.refused), now.last_refusal.c_str());
    }));
    return 0;
}

void ask_info(const rtrs::Session& session) {
    std::array<std::byte, kInfoSize> message{};
    std::array<std::byte, kInfoSize> answer{};
    store_u8(std::span(message).subspan<4, 1>(), kVersion);
    const auto done = session.read(message, answer).service().wait();
    if (!done) return void(std::printf("no info: %s\n", done.error().why.c_str()));
    std::printf("info: type %d, version %d\n", load_le16(std::span(answer).first<2>()),
                load_u8(std::span(answer).subspan<4, 1>()));
}

void print_paths(const rtrs::Session& session) {
    for (const rtrs::PathStatistics& path : session.statistics().paths)
        std::printf("%s %s after %llu connects, heartbeat %lld us (%s)\n",
                    path.address.destination.c_str(),
                    path.state == rtrs::PathState::Connected ? "up" : "down",
                    static_cast<unsigned long long>(path.connects),
                    static_cast<long long>(path.latency.count() / 1000), path.last_error.c_str());
    std::printf("end\n");
}

int use(std::uint16_t port, const char* name, const std::vector<rtrs::PathAddress>& paths) {
    rdma::Loop loop;
    rtrs::Client client(loop);
    rtrs::SessionOptions options;
    options.port = port;
    options.connections = 2;
    options.connect_timeout = 20s;  // The kernel's server is an emulated machine.
    options.heartbeat = rtrs::HeartbeatOptions{1s, 5};
    auto opened = loop.run(client.open(name, paths, options));
    if (!opened) return std::fprintf(stderr, "%s\n", opened.error().why.c_str()), 1;
    const rtrs::Session& session = *opened;
    std::printf("open\n");
    std::fflush(stdout);
    loop.run(read_commands(loop, [&](const std::string& word, std::size_t number) {
        if (word == "info") ask_info(session);
        if (word == "paths") print_paths(session);
        if (word == "disconnect") (void)session.disconnect_path(number);
        if (word == "reconnect") (void)session.reconnect_path(number);
    }));
    return 0;
}

}  // namespace

int main(int count, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + count);
    const auto port = words.size() > 1 ? static_cast<std::uint16_t>(std::stoi(words[1])) : 0;
    if (words.size() > 1 && words[0] == "server")
        return serve(static_cast<std::uint16_t>(port), words.size() > 2 && words[2] == "keys");
    if (words.size() < 4 || words[0] != "client") return 2;
    std::vector<rtrs::PathAddress> paths;
    for (std::size_t i = 3; i < words.size(); ++i) paths.push_back({words[i]});
    return use(static_cast<std::uint16_t>(port), words[2].c_str(), paths);
}
