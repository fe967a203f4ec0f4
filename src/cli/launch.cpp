#include "cli/launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "cli/complain.hpp"
#include "cli/run.hpp"

namespace feroce::cli {
namespace {

constexpr int kUsage = 2;
constexpr unsigned kMostNodes = 263;  // Processes of one user that can share UDP port 4791.
// A node that fails is noticed by the others. They end by themselves, or go on without it: a lock
// with a lease is taken over after 10 s. Those that still run after this time are stopped.
constexpr std::chrono::seconds kGrace{30};
constexpr std::chrono::seconds kStopTime{10};  // From SIGTERM to SIGKILL.
constexpr int kLookMs = 100;

struct Plan {
    unsigned nodes = 2;
    std::string address = "127.0.0.1";
    std::vector<std::string> command;
};

// One stream of one process.
struct Stream {
    int fd = -1;
    int to = STDOUT_FILENO;
    unsigned rank = 0;
    std::string line;  // Without its end, so far.
};

struct Child {
    pid_t pid = -1;
    bool ended = false;
};

volatile std::sig_atomic_t caught = 0;

std::optional<Plan> parse(const std::vector<std::string>& words) {
    Plan plan;
    std::size_t i = 0;
    for (; i < words.size() && words[i] != "--"; i += 2) {
        if (words[i].empty() || words[i][0] != '-') break;  // The command, without a --.
        if (i + 1 == words.size()) return std::nullopt;
        const std::string& value = words[i + 1];
        if (words[i] == "-n" || words[i] == "--nodes") {
            const char* end = value.data() + value.size();
            const auto [stop, error] = std::from_chars(value.data(), end, plan.nodes);
            if (error != std::errc{} || stop != end) return std::nullopt;
        } else if (words[i] == "--address") {
            plan.address = value;
        } else {
            return std::nullopt;
        }
    }
    if (i < words.size() && words[i] == "--") ++i;
    plan.command.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(i, words.size())),
                        words.end());
    if (plan.command.empty() || plan.nodes == 0) return std::nullopt;
    return plan;
}

// Does not return.
[[noreturn]] void become(const Plan& plan, unsigned rank, const std::string& seed,
                         const std::array<int, 4>& pipes, pid_t launcher) {
    // Nodes end with their launcher, however it ends; it may have ended before this.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(1);
    ::dup2(pipes[1], STDOUT_FILENO);
    ::dup2(pipes[3], STDERR_FILENO);
    for (const int fd : pipes) ::close(fd);
    ::setenv("FEROCE_GAS_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("FEROCE_GAS_SIZE", std::to_string(plan.nodes).c_str(), 1);
    ::setenv("FEROCE_GAS_SEED", seed.c_str(), 1);
    ::_exit(run(plan.command));
}

class Cluster {
public:
    explicit Cluster(const Plan& plan) : plan_(plan) {}

    bool start() {
        // Clusters of one machine must not meet: another port for each launch.
        const unsigned port = 20'000 + static_cast<unsigned>(::getpid()) % 20'000;
        const bool ipv6 = plan_.address.find(':') != std::string::npos;
        const std::string seed =
            fmt::format("{}{}{}:{}", ipv6 ? "[" : "", plan_.address, ipv6 ? "]" : "", port);
        for (unsigned rank = 0; rank < plan_.nodes; ++rank) {
            std::array<int, 4> pipes{};
            if (::pipe2(pipes.data(), O_CLOEXEC) != 0 || ::pipe2(pipes.data() + 2, O_CLOEXEC) != 0)
                return refuse();
            const pid_t launcher = ::getpid();
            const pid_t pid = ::fork();
            if (pid < 0) return refuse();
            if (pid == 0) become(plan_, rank, seed, pipes, launcher);
            ::close(pipes[1]);
            ::close(pipes[3]);
            children_.push_back({pid});
            streams_.push_back({pipes[0], STDOUT_FILENO, rank, {}});
            streams_.push_back({pipes[2], STDERR_FILENO, rank, {}});
        }
        return true;
    }

    int watch() {
        while (running() > 0 || open_streams() > 0) {
            show(kLookMs);
            reap();
            if (caught != 0) stop(std::exchange(caught, 0));
            if (failed_ && running() > 0) stop_late_ones(Clock::now() - *failed_);
            // What a process left behind may hold its streams open for ever.
            if (running() == 0 && --patience_ == 0) break;
        }
        for (Stream& stream : streams_) flush(stream);
        return status_;
    }

    void stop(int signal) const {
        for (const Child& child : children_)
            if (!child.ended) ::kill(child.pid, signal);
    }

private:
    using Clock = std::chrono::steady_clock;

    // `since`: the first of them has failed.
    void stop_late_ones(Clock::duration since) {
        if (since < kGrace) return;
        if (!std::exchange(told_, true))
            complain("a node has failed and others do not end; they are stopped");
        stop(since < kGrace + kStopTime ? SIGTERM : SIGKILL);
    }

    bool refuse() {
        complain(fmt::format("the nodes cannot be started: {}", std::strerror(errno)));
        stop(SIGKILL);
        for (const Child& child : children_) ::waitpid(child.pid, nullptr, 0);
        return false;
    }

    std::size_t running() const {
        return static_cast<std::size_t>(std::count_if(
            children_.begin(), children_.end(), [](const Child& child) { return !child.ended; }));
    }
    std::size_t open_streams() const {
        return static_cast<std::size_t>(std::count_if(streams_.begin(), streams_.end(),
                                                      [](const Stream& s) { return s.fd >= 0; }));
    }

    void reap() {
        for (unsigned rank = 0; rank < children_.size(); ++rank) {
            Child& child = children_[rank];
            int status = 0;
            if (child.ended || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
            child.ended = true;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
            const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            if (status_ == 0) status_ = code;
            if (!failed_) failed_ = Clock::now();
            if (WIFSIGNALED(status))
                complain(fmt::format("node {} was ended by signal {}", rank, WTERMSIG(status)));
            else
                complain(fmt::format("node {} ended with status {}", rank, code));
        }
    }

    void show(int timeout_ms) {
        std::vector<pollfd> wanted;
        for (const Stream& stream : streams_) wanted.push_back({stream.fd, POLLIN, 0});
        if (::poll(wanted.data(), wanted.size(), timeout_ms) <= 0) return;
        for (std::size_t i = 0; i < wanted.size(); ++i)
            if (wanted[i].revents != 0) take(streams_[i]);
    }

    static void take(Stream& stream) {
        std::array<char, 4096> bytes{};
        const ssize_t count = ::read(stream.fd, bytes.data(), bytes.size());
        if (count <= 0) {
            ::close(std::exchange(stream.fd, -1));
            return;
        }
        stream.line.append(bytes.data(), static_cast<std::size_t>(count));
        for (std::size_t end = 0; (end = stream.line.find('\n')) != std::string::npos;) {
            print(stream, stream.line.substr(0, end));
            stream.line.erase(0, end + 1);
        }
    }

    static void flush(Stream& stream) {
        if (!stream.line.empty()) print(stream, stream.line);
        stream.line.clear();
        if (stream.fd >= 0) ::close(std::exchange(stream.fd, -1));
    }

    static void print(const Stream& stream, const std::string& line) {
        FILE* to = stream.to == STDOUT_FILENO ? stdout : stderr;
        fmt::print(to, "[{}] {}\n", stream.rank, line);
        std::fflush(to);
    }

    Plan plan_;
    std::vector<Child> children_;
    std::vector<Stream> streams_;
    int status_ = 0;
    std::optional<Clock::time_point> failed_;  // When the first one did.
    bool told_ = false;                        // That others are stopped.
    int patience_ = 20;                        // Looks at streams after the last process has ended.
};

}  // namespace

int launch(const std::vector<std::string>& words) {
    const auto plan = parse(words);
    if (!plan) {
        complain("launch needs a number of nodes and a command: feroce launch -n 4 -- CMD ARGS");
        return kUsage;
    }
    if (plan->nodes > kMostNodes) {
        complain(
            fmt::format("a machine has room for {} nodes, which share UDP port 4791; {} are "
                        "too many",
                        kMostNodes, plan->nodes));
        return kUsage;
    }
    struct sigaction action {};
    action.sa_handler = [](int signal) { caught = signal; };
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
    Cluster cluster(*plan);
    return cluster.start() ? cluster.watch() : 1;
}

}  // namespace feroce::cli
