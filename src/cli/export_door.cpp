// See export_door.hpp.
#include "cli/export_door.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <utility>

#include "cli/session_doors.hpp"
#include "process/state_page.hpp"

namespace feroce::cli {
namespace {

constexpr std::string_view kPrefix = "export-";
constexpr std::string_view kWriters = "writers";
constexpr std::string_view kDisks = "disks";
constexpr std::string_view kEvict = "evict";
constexpr std::string_view kServes = "serves";  // Whether it has that config.
constexpr std::string_view kReload = "reload";
constexpr std::string_view kOk = "ok\n";
// A disk that is withdrawn finishes what it has begun.
constexpr int kReloadSeconds = 60;

// Of a server without a config file, or with another.
constexpr std::string_view kNotMine = "no server of this user runs here with such a config file";

// Links are not followed: they may lead elsewhere when the server is asked.
std::string absolute(const std::string& file) {
    std::error_code ignored;
    return file.empty() ? file
                        : std::filesystem::absolute(file, ignored).lexically_normal().string();
}

// By its name, or as it is now.
bool same_file(const std::string& one, const std::string& other) {
    std::error_code ignored;
    return one == other || std::filesystem::equivalent(one, other, ignored);
}

std::string answer_of(const std::string& trouble) {
    return trouble.empty() ? std::string(kOk) : "no\n" + trouble;
}

}  // namespace

ExportDoor::ExportDoor(block::DiskServer& server, const std::string& file,
                       std::function<void(Answer)> reload)
    : server_(server), file_(absolute(file)), reload_(std::move(reload)) {
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
        const std::string asked(request.data(), static_cast<std::size_t>(got));
        if (asked.c_str() == kReload && has_config(asked))
            reload_([this, from, size](const std::string& trouble) {
                send(from, size, answer_of(trouble));
            });
        else
            send(from, size, answer(asked));
    }
}

void ExportDoor::send(const sockaddr_un& to, socklen_t size, const std::string& said) const {
    (void)!::sendto(fd_, said.data(), said.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                    reinterpret_cast<const sockaddr*>(&to), size);
}

// Words, each with a NUL behind it.
bool ExportDoor::has_config(const std::string& asked) const {
    const std::string which = asked.c_str() + std::min(asked.size(), asked.find('\0') + 1);
    return !file_.empty() && (which.empty() || same_file(which, file_));
}

std::string ExportDoor::answer(const std::string& request) {
    const std::string what = request.c_str();
    std::string out(kOk);
    if (what == kWriters) {
        for (const block::Writer& writer : server_.writers())
            out += fmt::format("{} {} {} {}\n", writer.disk, writer.session, writer.generation,
                               fmt::join(writer.addresses, ","));
        return out;
    }
    if (what == kDisks) {
        for (const block::DiskStatistics& d : server_.disks())
            out += fmt::format("{} {} {} {} {} {}\n", d.size, d.reads, d.writes, d.read_bytes,
                               d.written_bytes, d.disk);
        return out;
    }
    if (what == kServes && has_config(request)) return std::string(kOk);
    if (what == kServes || what == kReload) return "no\n" + std::string(kNotMine);
    if (what != kEvict || request.size() <= what.size() + 1) return "no\nit asks what is not known";
    const auto evicted = server_.evict(request.c_str() + what.size() + 1);
    return answer_of(evicted ? "" : evicted.error().why);
}

namespace {

// The lines behind `ok`; none if the server does not answer, or does not know the question.
std::vector<std::string> lines_of(const std::string& answer) {
    std::vector<std::string> out;
    if (!answer.starts_with(kOk)) return out;
    std::istringstream lines(answer.substr(kOk.size()));
    for (std::string line; std::getline(lines, line);) out.push_back(line);
    return out;
}

Json writers_at(const std::string& door) {
    Json out = Json::array();
    for (const std::string& line : lines_of(ask(door, {std::string(kWriters)}))) {
        std::istringstream words(line);
        std::string disk, session, addresses;
        std::uint64_t generation = 0;
        words >> disk >> session >> generation >> addresses;
        out.push_back({{"disk", disk},
                       {"session", session},
                       {"generation", generation},
                       {"addresses", addresses}});
    }
    return out;
}

void append(std::string& to, const Json& word) {
    to += (to.empty() ? "" : ",") + word.get<std::string>();
}

}  // namespace

std::vector<ServedDisk> served_disks() {
    std::vector<ServedDisk> out;
    for (const std::string& door : doors(kPrefix)) {
        const std::vector<std::string> disks = lines_of(ask(door, {std::string(kDisks)}));
        const Json writers = disks.empty() ? Json::array() : writers_at(door);
        for (const std::string& line : disks) {
            ServedDisk& disk = out.emplace_back();
            disk.pid = pid_of(door);
            std::istringstream words(line);
            words >> disk.size >> disk.reads >> disk.writes >> disk.read_bytes >>
                disk.written_bytes >> std::ws;
            std::getline(words, disk.name);
            for (const Json& writer : writers) {
                if (writer["disk"] != disk.name) continue;
                append(disk.writer, writer["session"]);
                append(disk.addresses, writer["addresses"]);
            }
        }
    }
    return out;
}

int show_writers(const OutputOptions& options) {
    Json all = Json::array();
    for (const std::string& door : doors(kPrefix))
        for (Json& writer : writers_at(door)) all.push_back(std::move(writer));
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

int reload_configs(const std::string& file) {
    std::vector<std::string> told;
    bool found = false;
    bool done = true;
    for (const std::string& door : doors(kPrefix)) {
        // A server of something else may be stopped: it is not waited for as long as a disk.
        std::string why = tell(door, {std::string(kServes), absolute(file)});
        if (why == kNotMine || has_ended(door)) continue;
        if (why.empty()) {
            why = tell(door, {std::string(kReload), absolute(file)}, kReloadSeconds);
            found = true;
            done = done && why.empty();
        } else {
            done = done && !file.empty();  // Nobody knows what it serves: perhaps another config.
        }
        if (!why.empty()) told.push_back(std::move(why));
    }
    if (told.empty() && !found) told.emplace_back(kNotMine);
    for (const std::string& why : told) fmt::print(stderr, "feroce: {}\n", why);
    return found && done ? 0 : 1;
}

}  // namespace feroce::cli
