// See attach.hpp. A disk for NBD clients is served by a process of ours, whose number lies beside
// its socket.
#include "cli/attach.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "block/nbd/serve.hpp"
#include "cli/attach_ublk.hpp"
#include "cli/background.hpp"
#include "cli/complain.hpp"

namespace feroce::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kUri = "nbd+unix:///?socket=";
constexpr auto kPatience = 30s;  // For its server to end.

std::string default_session() {
    std::array<char, 65> host{};
    ::gethostname(host.data(), host.size() - 1);
    std::string name = fmt::format("{}-{}", host.data(), ::getpid());
    // Dots and slashes are not for session names.
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '.' || c == '/'; }, '-');
    return name;
}

// A folder that nobody else can write: elsewhere another user could put a link in the way. Empty:
// there is none.
std::string private_folder() {
    const char* const given = ::secure_getenv("XDG_RUNTIME_DIR");
    const std::string folder =
        given != nullptr ? given : fmt::format("/tmp/feroce-{}", ::geteuid());
    if (given == nullptr) ::mkdir(folder.c_str(), 0700);
    struct stat status {};
    const bool ours = ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                      status.st_uid == ::geteuid() && (status.st_mode & 022) == 0;
    return ours ? folder : std::string();
}

std::string pid_file(const std::string& socket) {
    return socket + ".pid";
}

void forget(const std::string& socket) {
    ::unlink(socket.c_str());
    ::unlink(pid_file(socket).c_str());
}

struct flock whole_file() {
    struct flock out {};
    out.l_type = F_WRLCK;
    out.l_whence = SEEK_SET;
    return out;
}

// For detach: the number of this process, in a file that it has locked as long as it lives. -1: it
// has not, as errno says.
int hold_pid_file(const std::string& socket) {
    const int fd = ::open(pid_file(socket).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    struct flock lock = whole_file();
    const std::string text = fmt::format("{}\n", ::getpid());
    if (::fcntl(fd, F_SETLK, &lock) == 0 && ::ftruncate(fd, 0) == 0 &&
        ::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()))
        return fd;
    const int code = errno;
    ::close(fd);
    errno = code;
    return -1;
}

// The process that serves there, as a descriptor; -1 if none does, or another than the pid file
// says: a pid may be another process's by now, and so may a file that names one.
int process_of(const std::string& socket, pid_t pid) {
    const auto holds = [&] {
        const int fd = ::open(pid_file(socket).c_str(), O_RDWR | O_CLOEXEC);
        struct flock lock = whole_file();
        const bool told = fd >= 0 && ::fcntl(fd, F_GETLK, &lock) == 0;
        if (fd >= 0) ::close(fd);
        return told && lock.l_type != F_UNLCK && lock.l_pid == pid;
    };
    const int process = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    // It holds the file still, so the descriptor is its own.
    if (process >= 0 && holds()) return process;
    if (process >= 0) ::close(process);
    return -1;
}

rdma::Result<> serve_nbd(const AttachOptions& options,
                         const std::function<void(const std::string&)>& told) {
    const std::string& socket = options.socket;
    const int held = hold_pid_file(socket);
    if (held < 0) return rdma::Error{errno, pid_file(socket) + ": " + std::strerror(errno)};
    auto served =
        block::nbd::serve(disk_wish(options), socket, [&] { told(std::string(kUri) + socket); });
    ::unlink(pid_file(socket).c_str());
    ::close(held);
    return served;
}

int attach_nbd(AttachOptions options) {
    if (options.socket.empty()) {
        const std::string folder = private_folder();
        if (folder.empty())
            return complain(
                "there is no folder that is yours alone, neither XDG_RUNTIME_DIR nor one in /tmp; "
                "name a socket with --socket");
        options.socket = fmt::format("{}/feroce-{}.sock", folder, ::getpid());
    }
    if (::access(options.socket.c_str(), F_OK) == 0)
        return complain(options.socket + " exists; detach it, or name another with --socket");
    return serve_disk(options.foreground,
                      [&](const auto& told) { return serve_nbd(options, told); });
}

int detach_nbd(const std::string& socket_or_uri) {
    const bool is_uri = socket_or_uri.starts_with(kUri);
    const std::string socket = is_uri ? socket_or_uri.substr(kUri.size()) : socket_or_uri;
    pid_t pid = 0;
    std::ifstream(pid_file(socket)) >> pid;
    if (pid <= 0) return complain(fmt::format("{} is no disk of feroce attach", socket));
    const int process = process_of(socket, pid);
    if (process < 0) {
        forget(socket);  // Somebody has killed all of it.
        return 0;
    }
    if (::syscall(SYS_pidfd_send_signal, process, SIGTERM, nullptr, 0) != 0 && errno != ESRCH)
        return complain(
            fmt::format("the server of {} cannot be ended: {}", socket, std::strerror(errno)));
    pollfd ended{process, POLLIN, 0};
    const int patience = static_cast<int>(std::chrono::milliseconds(kPatience).count());
    if (::poll(&ended, 1, patience) != 1)
        return complain(fmt::format("the server of {} does not end", socket));
    ::close(process);
    forget(socket);  // It has done so itself, unless it was killed.
    return 0;
}

}  // namespace

block::DiskWish disk_wish(const AttachOptions& options) {
    block::DiskWish out;
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

int attach(AttachOptions options) {
    if (options.session.empty()) options.session = default_session();
    if (options.access != "ro" && options.access != "rw" && options.access != "migration")
        return complain("access is ro, rw or migration, not " + options.access);
    const bool may_be_device =
        options.form == "ublk" || (options.form == "auto" && options.socket.empty());
    std::string why;
    if (may_be_device && has_ublk(why)) return attach_ublk(options);
    if (options.form == "ublk") return complain(why);
    return attach_nbd(std::move(options));
}

int detach(const std::string& what) {
    return is_ublk_device(what) ? detach_ublk(what) : detach_nbd(what);
}

}  // namespace feroce::cli
