// See attach_ublk.hpp. The kernel knows the process that serves a disk, and that it is one of ours.
#include "cli/attach_ublk.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <string_view>

#include "block/ublk/control.hpp"
#include "block/ublk/serve.hpp"
#include "cli/background.hpp"
#include "cli/complain.hpp"

namespace feroce::cli {
namespace {

using block::ublk::Control;
using namespace std::chrono_literals;

constexpr auto kDevicePatience = 30s;  // For the device to go.

std::optional<std::uint32_t> number_of(std::string_view path) {
    const std::string_view prefix = block::ublk::kDevicePrefix;
    if (!path.starts_with(prefix)) return std::nullopt;
    const std::string_view digits = path.substr(prefix.size());
    std::uint32_t out = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return out;
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
    return serve_disk(options.foreground, [&](const auto& told) {
        return block::ublk::serve(disk_wish(options), told);
    });
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
