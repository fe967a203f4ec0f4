#include "cli/session_doors.hpp"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "process/state_page.hpp"
#include "rtrs/control_names.hpp"

namespace feroce::cli {
namespace {

// A loop answers between two rounds, unless its program is stopped or computes for long.
constexpr int kPatienceSeconds = 1;
// How often the asker looks whether the program behind the door has ended.
constexpr int kSliceMilliseconds = 100;
constexpr int kAnswerMax = 1 << 20;

sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof address.sun_path - 1));
    return address;
}

// Where the answers come in.
class Letterbox {
public:
    explicit Letterbox(const std::string& directory, int patience_seconds = kPatienceSeconds)
        : path_(directory + "/ask-" + std::to_string(::getpid())),
          patience_(patience_seconds),
          fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        const sockaddr_un own = address_of(path_);
        ::unlink(path_.c_str());
        const timeval slice{0, kSliceMilliseconds * 1000};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice);
        // The queue of a program that is stopped fills up.
        ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &slice, sizeof slice);
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &kAnswerMax, sizeof kAnswerMax);
        if (::bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0)
            throw UsageError(fmt::format("{} cannot be used: {}", path_, std::strerror(errno)));
    }
    ~Letterbox() {
        ::close(fd_);
        ::unlink(path_.c_str());
    }
    Letterbox(const Letterbox&) = delete;
    Letterbox& operator=(const Letterbox&) = delete;

    // Nothing with ECONNREFUSED: nobody is behind the door any more; else: no answer came.
    std::optional<std::string> ask(const std::string& door, const std::vector<std::string>& words) {
        std::string request;
        for (const std::string& word : words) request.append(word).append(1, '\0');
        const sockaddr_un to = address_of(door);
        if (::sendto(fd_, request.data(), request.size(), MSG_NOSIGNAL,
                     reinterpret_cast<const sockaddr*>(&to), sizeof to) < 0)
            return std::nullopt;
        const auto deadline = std::chrono::steady_clock::now() + patience_;
        for (;;) {
            // A program that ends answers nothing, and the kernel does not tell.
            const bool ended = has_ended(door);
            if (auto answer = receive_from(to)) return answer;
            errno = ended ? ECONNREFUSED : ETIMEDOUT;
            if (ended || std::chrono::steady_clock::now() >= deadline) return std::nullopt;
        }
    }

private:
    // Nothing also if another program answers, which was asked before and is late.
    std::optional<std::string> receive_from(const sockaddr_un& door) const {
        std::string answer(kAnswerMax, '\0');
        sockaddr_un from{};
        socklen_t length = sizeof from;
        const ssize_t size = ::recvfrom(fd_, answer.data(), answer.size(), 0,
                                        reinterpret_cast<sockaddr*>(&from), &length);
        if (size < 0 || std::strcmp(from.sun_path, door.sun_path) != 0) return std::nullopt;
        answer.resize(static_cast<std::size_t>(size));
        return answer;
    }

    std::string path_;
    std::chrono::seconds patience_;
    int fd_;
};

std::string user_directory() {
    const Result<std::string> directory = process::user_directory(::geteuid());
    if (!directory) throw UsageError(directory.error().why);
    return *directory;
}

std::vector<std::string> doors_in(const std::string& directory, std::string_view prefix) {
    std::vector<std::string> out;
    DIR* const list = ::opendir(directory.c_str());
    if (list == nullptr) return out;
    while (const dirent* entry = ::readdir(list))
        if (std::string_view(entry->d_name).starts_with(prefix))
            out.push_back(directory + "/" + entry->d_name);
    ::closedir(list);
    std::sort(out.begin(), out.end());
    return out;
}

std::string command_of(unsigned pid) {
    std::ifstream file(fmt::format("/proc/{}/comm", pid));
    std::string name;
    std::getline(file, name);
    return name;
}

Json value_of(const std::string& text) {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc{} && last == end) return number;
    return text;
}

// The records that follow `ok`.
std::vector<LiveSession> parse(const std::string& door, const std::string& answer) {
    std::vector<LiveSession> out;
    std::istringstream lines(answer);
    std::string line;
    std::getline(lines, line);
    Json* into = nullptr;
    while (std::getline(lines, line)) {
        const std::size_t space = std::min(line.find(' '), line.size());
        const std::string key = line.substr(0, space);
        const std::string value = line.substr(std::min(space + 1, line.size()));
        if (key == "session") {
            const unsigned pid = pid_of(door);
            out.push_back(
                {door, value, {{"pid", pid}, {"comm", command_of(pid)}, {"session", value}}});
            into = &out.back().record;
        } else if (key == "path" && !out.empty()) {
            Json& paths = out.back().record["paths"];
            paths.push_back({{"path", value_of(value)}});
            into = &paths.back();
        } else if (into != nullptr) {
            (*into)[key] = value_of(value);
        }
    }
    return out;
}

}  // namespace

bool has_ended(const std::string& door) {
    const sockaddr_un to = address_of(door);
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int reached = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    const bool ended = reached != 0 && (errno == ECONNREFUSED || errno == ENOENT);
    ::close(fd);
    return ended;
}

unsigned pid_of(const std::string& door) {
    const std::size_t at = door.find('-', door.rfind('/')) + 1;  // Of a name such as export-42.
    unsigned pid = 0;
    std::from_chars(door.data() + std::min(at, door.size()), door.data() + door.size(), pid);
    return pid;
}

std::vector<LiveSession> live_sessions() {
    std::vector<unsigned> silent;
    std::vector<LiveSession> out = live_sessions(silent);
    for (const unsigned pid : silent)
        fmt::print(stderr, "feroce: process {} ({}) does not answer\n", pid, command_of(pid));
    return out;
}

std::vector<LiveSession> live_sessions(std::vector<unsigned>& silent) {
    std::vector<LiveSession> out;
    const std::string directory = user_directory();
    Letterbox letterbox(directory);
    for (const std::string& door : doors_in(directory, rtrs::kDoorPrefix)) {
        const auto answer = letterbox.ask(door, {std::string(rtrs::control::kShow)});
        if (!answer && errno == ECONNREFUSED)
            ::unlink(door.c_str());
        else if (!answer)
            silent.push_back(pid_of(door));
        else
            for (LiveSession& found : parse(door, *answer)) out.push_back(std::move(found));
    }
    return out;
}

std::vector<std::string> doors(std::string_view prefix) {
    std::vector<std::string> all = doors_in(user_directory(), prefix);
    std::erase_if(all, [](const std::string& door) {
        const bool dead = has_ended(door);
        if (dead) ::unlink(door.c_str());
        return dead;
    });
    return all;
}

std::string ask(const std::string& door, const std::vector<std::string>& words) {
    Letterbox letterbox(user_directory());
    const auto answer = letterbox.ask(door, words);
    if (!answer && errno == ECONNREFUSED) ::unlink(door.c_str());
    return answer.value_or("");
}

std::string tell(const std::string& door, const std::vector<std::string>& words,
                 int patience_seconds) {
    Letterbox letterbox(user_directory(), patience_seconds);
    const auto answer = letterbox.ask(door, words);
    if (!answer)
        return fmt::format("process {} {}", pid_of(door),
                           errno == ECONNREFUSED ? "has ended" : "does not answer");
    const std::size_t end = std::min(answer->find('\n'), answer->size());
    if (answer->substr(0, end) == rtrs::control::kOk) return {};
    std::string why = answer->substr(std::min(end + 1, answer->size()));
    while (!why.empty() && why.back() == '\n') why.pop_back();
    return why;
}

}  // namespace feroce::cli
