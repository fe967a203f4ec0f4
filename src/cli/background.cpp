// See background.hpp.
#include "cli/background.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <utility>

#include "cli/complain.hpp"

namespace feroce::cli {
namespace {

constexpr auto kComingUp = std::chrono::seconds(30);
constexpr char kServed = '+', kFailed = '-';

rdma::Result<> serve_contained(const ServeDisk& serve,
                               const std::function<void(const std::string&)>& told) {
    try {
        return serve(told);
    } catch (const std::exception& failure) {
        return rdma::Error{ENOMEM, failure.what()};
    }
}

[[noreturn]] void serve_in_background(const ServeDisk& serve, int pipe) {
    ::setsid();
    const int nothing = ::open("/dev/null", O_RDWR);
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        ::dup2(nothing, standard);
    ::signal(SIGPIPE, SIG_IGN);
    const auto tell = [&pipe](char how, const std::string& words) {
        if (pipe < 0) return;
        const std::string line = how + words;
        const bool heard = ::write(pipe, line.data(), line.size()) >= 0;
        ::close(std::exchange(pipe, -1));
        if (!heard) ::raise(SIGTERM);  // Nobody would know of the disk: it is taken away again.
    };
    const auto served =
        serve_contained(serve, [&](const std::string& words) { tell(kServed, words); });
    if (!served) tell(kFailed, served.error().why);
    ::_exit(served ? 0 : 1);
}

// What it told; empty if it ended without a word, or took too long.
std::string hear(int pipe) {
    std::array<char, 4096> text;
    std::size_t size = 0;
    const auto end = std::chrono::steady_clock::now() + kComingUp;
    while (size < text.size()) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            end - std::chrono::steady_clock::now());
        pollfd look{pipe, POLLIN, 0};
        if (left.count() <= 0 || ::poll(&look, 1, static_cast<int>(left.count())) <= 0) break;
        const ssize_t got = ::read(pipe, text.data() + size, text.size() - size);
        if (got <= 0) break;
        size += static_cast<std::size_t>(got);
    }
    return {text.data(), size};
}

}  // namespace

int serve_disk(bool foreground, const ServeDisk& serve) {
    const auto print = [](const std::string& words) {
        fmt::print("{}\n", words);
        std::fflush(stdout);
    };
    if (foreground) {
        const auto served = serve_contained(serve, print);
        return served ? 0 : complain(served.error().why);
    }
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return complain(std::strerror(errno));
    const pid_t child = ::fork();
    if (child < 0) return complain(std::strerror(errno));
    if (child == 0) {
        ::close(ends[0]);
        serve_in_background(serve, ends[1]);
    }
    ::close(ends[1]);
    const std::string told = hear(ends[0]);
    ::close(ends[0]);
    if (!told.empty() && told[0] == kServed) {
        print(told.substr(1));
        return 0;
    }
    if (told.empty()) ::kill(child, SIGTERM);
    if (!told.empty()) ::waitpid(child, nullptr, 0);
    return complain(told.empty() ? "the disk did not come up" : told.substr(1));
}

}  // namespace feroce::cli
