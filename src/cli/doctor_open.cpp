// What happens to a program that opens a device here: a child opens one and closes it again. Rules
// that were written down twice would sooner or later differ.
#include <fcntl.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "cli/doctor.hpp"

namespace feroce::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kOpened = 0, kRefused = 1, kNoDevice = 2;
// More than a program waits for others that enter the port.
constexpr std::chrono::seconds kTrialPatience{20};

// In the child. Never returns; the library says on stderr what it refuses, and why.
[[noreturn]] void open_and_end(int words) {
    ::dup2(words, STDERR_FILENO);
    // It would replace the capture of another program.
    ::unsetenv("FEROCE_PCAP");
    const char* level = std::getenv("FEROCE_LOG");
    if (level != nullptr && std::strcmp(level, "off") == 0) ::setenv("FEROCE_LOG", "error", 1);
    int count = 0;
    ibv_device** list = ::ibv_get_device_list(&count);
    if (list == nullptr || count == 0) ::_exit(kNoDevice);
    ibv_context* context = ::ibv_open_device(list[0]);
    if (context == nullptr) {
        const int error = errno;
        fmt::print(stderr, "{}\n{}\n", error, ::ibv_get_device_name(list[0]));
        std::fflush(stderr);
        ::_exit(kRefused);
    }
    fmt::print(stderr, "0\n{}\n", ::ibv_get_device_name(list[0]));
    std::fflush(stderr);
    ::ibv_close_device(context);
    ::_exit(kOpened);
}

std::string read_until(int fd, Clock::time_point deadline) {
    std::string out;
    char part[512];
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd ready{fd, POLLIN, 0};
        if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return out;
        const ssize_t got = ::read(fd, part, sizeof part);
        if (got <= 0) return out;
        out.append(part, static_cast<std::size_t>(got));
    }
}

// The sentence behind "feroce: error: DEVICE: "; lines of other levels may be around it.
std::string reason_in(const std::vector<std::string>& lines, const std::string& device) {
    const std::string head = "error: " + device + ": ";
    for (const std::string& line : lines)
        if (const std::size_t at = line.find(head); at != std::string::npos)
            return line.substr(at + head.size());
    return lines.empty() ? "" : lines.back();
}

Trial judge(int status, const std::string& words, bool in_time) {
    Trial out;
    std::vector<std::string> lines;
    std::istringstream stream(words);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoDevice) return out;
    out.tried = true;
    out.opened = WIFEXITED(status) && WEXITSTATUS(status) == kOpened;
    if (lines.size() >= 2) {
        out.device = lines.back();
        out.error = std::atoi(lines[lines.size() - 2].c_str());
        lines.resize(lines.size() - 2);
    }
    if (out.opened) return out;
    if (!in_time)
        out.why = "nothing came of it in 20 seconds";
    else
        out.why = lines.empty() ? ::strerror(out.error) : reason_in(lines, out.device);
    return out;
}

bool may_write(std::string path) {
    if (const std::size_t at = path.find("%p"); at != std::string::npos) path.replace(at, 2, "0");
    if (::access(path.c_str(), F_OK) == 0) return ::access(path.c_str(), W_OK) == 0;
    const fs::path folder = fs::path(path).parent_path();
    return ::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0;
}

std::string mend_for(const Trial& trial) {
    if (trial.why.find("FEROCE_SHARE=any") != std::string::npos)
        return "export FEROCE_SHARE=any   # if that user may read root's packets";
    const std::size_t at = trial.why.find("FEROCE_");
    if (at == std::string::npos) return "";
    return "unset " + trial.why.substr(at, trial.why.find_first_of(" =", at) - at);
}

}  // namespace

Trial try_device() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return {};
    const pid_t child = ::fork();
    if (child == 0) open_and_end(ends[1]);
    ::close(ends[1]);
    const Clock::time_point deadline = Clock::now() + kTrialPatience;
    const std::string words = read_until(ends[0], deadline);
    ::close(ends[0]);
    if (child < 0) return {};
    const bool in_time = Clock::now() < deadline;
    if (!in_time) ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    return judge(status, words, in_time);
}

std::vector<Finding> check_open(const Trial& trial) {
    std::vector<Finding> out;
    const char* capture = std::getenv("FEROCE_PCAP");
    if (capture != nullptr && *capture != '\0' && !may_write(capture))
        out.push_back({Verdict::Stop, "open",
                       fmt::format("FEROCE_PCAP names a file that cannot be written: {}", capture),
                       "unset FEROCE_PCAP"});
    if (!trial.tried) return out;  // There is no device, as another finding says.
    if (trial.opened)
        out.push_back({Verdict::Good, "open",
                       fmt::format("{} was opened and closed, as a program would", trial.device),
                       ""});
    else
        out.push_back({Verdict::Stop, "open",
                       fmt::format("{} cannot be opened: {}",
                                   trial.device.empty() ? "a device" : trial.device, trial.why),
                       mend_for(trial)});
    return out;
}

}  // namespace feroce::cli
