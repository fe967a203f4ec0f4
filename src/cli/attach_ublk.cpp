// See attach_ublk.hpp. The disk is served by a process of ours in the background, which tells by a
// pipe how it went. The kernel knows that process, and that it is one of ours.
#include "cli/attach_ublk.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>

#include "block/ublk/control.hpp"
#include "block/ublk/serve.hpp"
#include "cli/complain.hpp"

namespace feroce::cli {
namespace {

using block::ublk::Control;
using namespace std::chrono_literals;

constexpr auto kDevicePatience = 30s;  // For the device to come, or to go.
constexpr char kServed = '+', kFailed = '-';

std::optional<std::uint32_t> number_of(std::string_view path) {
    const std::string_view prefix = block::ublk::kDevicePrefix;
    if (!path.starts_with(prefix)) return std::nullopt;
    const std::string_view digits = path.substr(prefix.size());
    std::uint32_t out = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return out;
}

block::ublk::Wish wish_of(const AttachOptions& options) {
    block::ublk::Wish out;
    out.session = options.session;
    out.disk = options.disk;
    out.access = options.access == "ro"          ? block::AccessMode::ReadOnly
                 : options.access == "migration" ? block::AccessMode::Migration
                                                 : block::AccessMode::ReadWrite;
    out.options.port = options.port;
    out.options.queue_if_no_path = std::chrono::seconds(options.patience);
    std::string_view rest = options.servers;
    while (!rest.empty()) {
        const auto comma = std::min(rest.find(','), rest.size());
        out.servers.push_back({std::string(rest.substr(0, comma))});
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return out;
}

rdma::Result<> serve(const AttachOptions& options,
                     const std::function<void(const std::string&)>& told) {
    try {
        return block::ublk::serve(wish_of(options), told);
    } catch (const std::exception& failure) {
        return rdma::Error{ENOMEM, failure.what()};
    }
}

[[noreturn]] void serve_in_background(const AttachOptions& options, int pipe) {
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
        if (!heard) ::raise(SIGTERM);  // Nobody would know of the device: it is taken away again.
    };
    const auto served = serve(options, [&](const std::string& path) { tell(kServed, path); });
    if (!served) tell(kFailed, served.error().why);
    ::_exit(served ? 0 : 1);
}

// What it told; empty if it ended without a word, or took too long.
std::string hear(int pipe) {
    std::array<char, 4096> text;
    std::size_t size = 0;
    const auto end = std::chrono::steady_clock::now() + kDevicePatience;
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

// The process that serves the device, as a descriptor: asked before and after, it is the same.
int process_of(Control& control, std::uint32_t device) {
    const auto before = control.facts(device);
    if (!before || before->server <= 0) return -1;
    const int out = static_cast<int>(::syscall(SYS_pidfd_open, before->server, 0));
    const auto after = control.facts(device);
    if (out >= 0 && after && after->server == before->server) return out;
    if (out >= 0) ::close(out);
    return -1;
}

// The sentence that says why the disk cannot be taken away now; empty: it can.
std::string in_use(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC);
    if (fd < 0 && errno == EBUSY) return path + " is in use: unmount it first";
    if (fd < 0) return {};  // It is not there any more.
    // What programs wrote and nobody has flushed lies in the kernel's cache.
    const int status = ::fsync(fd);
    const int code = errno;
    ::close(fd);
    if (status == 0) return {};
    return fmt::format("{}: what was written to it cannot be flushed: {}", path,
                       std::strerror(code));
}

int end_server(int process, const std::string& path) {
    if (::syscall(SYS_pidfd_send_signal, process, SIGTERM, nullptr, 0) != 0 && errno != ESRCH)
        return complain(
            fmt::format("the server of {} cannot be ended: {}", path, std::strerror(errno)));
    pollfd ended{process, POLLIN, 0};
    const int patience = static_cast<int>(std::chrono::milliseconds(kDevicePatience).count());
    if (::poll(&ended, 1, patience) != 1)
        return complain(fmt::format("the server of {} does not end", path));
    return 0;
}

}  // namespace

bool has_ublk(std::string& why) {
    const auto control = Control::open();
    if (!control) why = control.error().why;
    return control.has_value();
}

bool is_ublk_device(const std::string& path) {
    return number_of(path).has_value();
}

int attach_ublk(const AttachOptions& options) {
    const auto print = [](const std::string& path) {
        fmt::print("{}\n", path);
        std::fflush(stdout);
    };
    if (options.foreground) {
        const auto served = serve(options, print);
        return served ? 0 : complain(served.error().why);
    }
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return complain(std::strerror(errno));
    const pid_t child = ::fork();
    if (child < 0) return complain(std::strerror(errno));
    if (child == 0) {
        ::close(ends[0]);
        serve_in_background(options, ends[1]);
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

int detach_ublk(const std::string& path) {
    auto opened = Control::open();
    if (!opened) return complain(opened.error().why);
    Control& control = **opened;
    const std::uint32_t device = *number_of(path);
    const auto facts = control.facts(device);
    if (!facts || facts->mark != block::ublk::kOurMark)
        return complain(path + " is no disk of feroce attach");
    const std::string why = in_use(path);
    if (!why.empty()) return complain(why);
    const int process = process_of(control, device);
    if (process >= 0) {
        const int status = end_server(process, path);
        ::close(process);
        return status;
    }
    // Its server was killed: the kernel has taken the disk away, and keeps its number.
    (void)control.stop(device);
    const auto removed = control.remove(device);
    return removed ? 0 : complain(removed.error().why);
}

}  // namespace feroce::cli
