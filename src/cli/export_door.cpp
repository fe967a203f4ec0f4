// See export_door.hpp.
#include "cli/export_door.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "cli/session_doors.hpp"
#include "process/state_page.hpp"

namespace feroce::cli {
namespace {

constexpr std::string_view kPrefix = "export-";
constexpr std::string_view kWriters = "writers";
constexpr std::string_view kEvict = "evict";
constexpr std::string_view kOk = "ok\n";

}  // namespace

ExportDoor::ExportDoor(block::Server& server) : server_(server) {
    const auto directory = process::user_directory(::geteuid());
    if (!directory) return;
    path_ = fmt::format("{}/{}{}", *directory, kPrefix, ::getpid());
    sockaddr_un own{};
    own.sun_family = AF_UNIX;
    if (path_.size() >= sizeof own.sun_path) return;
    path_.copy(own.sun_path, path_.size());
    ::unlink(path_.c_str());
    fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (::bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0) return;
    ::close(fd_);
    fd_ = -1;
}

ExportDoor::~ExportDoor() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(path_.c_str());
}

void ExportDoor::answer_all() {
    std::array<char, 1024> request;
    for (;;) {
        sockaddr_un from{};
        socklen_t size = sizeof from;
        auto* const peer = reinterpret_cast<sockaddr*>(&from);
        const ssize_t got = ::recvfrom(fd_, request.data(), request.size(), 0, peer, &size);
        if (got < 0) return;
        const std::string said = answer(std::string(request.data(), static_cast<std::size_t>(got)));
        (void)!::sendto(fd_, said.data(), said.size(), MSG_NOSIGNAL | MSG_DONTWAIT, peer, size);
    }
}

// Words, each with a NUL behind it.
std::string ExportDoor::answer(const std::string& request) {
    const std::string what = request.c_str();
    std::string out(kOk);
    if (what == kWriters) {
        for (const block::Writer& writer : server_.writers())
            out += fmt::format("{} {} {} {}\n", writer.disk, writer.session, writer.generation,
                               fmt::join(writer.addresses, ","));
        return out;
    }
    if (what != kEvict || request.size() <= what.size() + 1) return "no\nit asks what is not known";
    const auto evicted = server_.evict(request.c_str() + what.size() + 1);
    return evicted ? out : "no\n" + evicted.error().why;
}

int show_writers(const OutputOptions& options) {
    Json all = Json::array();
    for (const std::string& door : doors(kPrefix)) {
        std::istringstream lines(ask(door, {std::string(kWriters)}));
        std::string line;
        std::getline(lines, line);
        while (std::getline(lines, line)) {
            std::istringstream words(line);
            std::string disk, session, addresses;
            std::uint64_t generation = 0;
            words >> disk >> session >> generation >> addresses;
            all.push_back({{"disk", disk},
                           {"session", session},
                           {"generation", generation},
                           {"addresses", addresses}});
        }
    }
    if (options.json) {
        print_json(all, options);
        return 0;
    }
    for (const Json& one : all)
        fmt::print("disk {} session {} generation {} from {}\n", one["disk"].get<std::string>(),
                   one["session"].get<std::string>(), one["generation"].dump(),
                   one["addresses"].get<std::string>());
    return 0;
}

int evict_writer(const std::string& disk) {
    std::string why = "no server of this user runs here";
    for (const std::string& door : doors(kPrefix)) {
        why = tell(door, {std::string(kEvict), disk});
        if (why.empty()) return 0;
    }
    fmt::print(stderr, "feroce: {}\n", why);
    return 1;
}

}  // namespace feroce::cli
