// See attach.hpp. nbdkit runs in its foreground mode, under a process of ours in the background:
// when it goes there by itself it closes its stderr, and a server's refusal is heard by nobody.
#include "cli/attach.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cli/attach_ublk.hpp"
#include "cli/complain.hpp"
#include "cli/run.hpp"

namespace feroce::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kUri = "nbd+unix:///?socket=";
constexpr auto kPatience = 30s;  // For nbdkit to come up, or to end.
constexpr auto kTidying = 2s;
constexpr auto kLook = 10ms;

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

std::vector<std::string> command(const AttachOptions& options, const std::string& plugin) {
    std::vector<std::string> out{"nbdkit",    "--foreground",          "--unix", options.socket,
                                 "--pidfile", options.socket + ".pid", plugin};
    std::string_view rest = options.servers;
    while (!rest.empty()) {
        const auto comma = std::min(rest.find(','), rest.size());
        out.push_back(fmt::format("server={}", rest.substr(0, comma)));
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    out.push_back("disk=" + options.disk);
    out.push_back("session=" + options.session);
    out.push_back("access=" + options.access);
    out.push_back(fmt::format("port={}", options.port));
    out.push_back(fmt::format("patience={}", options.patience));
    return out;
}

[[noreturn]] void become_nbdkit(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    const std::string why = errno == ENOENT
                                ? "nbdkit is not installed; apt-get install nbdkit"
                                : fmt::format("nbdkit cannot be run: {}", std::strerror(errno));
    (void)!::write(STDERR_FILENO, why.data(), why.size());
    ::_exit(126);
}

void forget(const std::string& socket) {
    ::unlink(socket.c_str());
    ::unlink((socket + ".pid").c_str());
}

// In the child, in the background: nbdkit in the foreground ends with its parent, so this one waits
// for it, and tidies up. Its stderr is a file in memory that we read if it fails.
[[noreturn]] void keep_nbdkit(const std::vector<std::string>& words, const std::string& socket,
                              int words_file) {
    ::setsid();
    const int nothing = ::open("/dev/null", O_RDWR);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(nothing, STDOUT_FILENO);
    ::dup2(words_file, STDERR_FILENO);
    const pid_t child = ::fork();
    if (child == 0) become_nbdkit(words);
    int status = 0;
    ::waitpid(child, &status, 0);
    forget(socket);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int connect_to(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return -1;
    std::copy(path.begin(), path.end(), address.sun_path);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    ::close(fd);
    return -1;
}

// The process that listens there, as a descriptor; -1 if none does, or another than the pid file
// says: a pid may be another process's by now, and so may a file that names one.
int process_of(const std::string& socket, pid_t pid) {
    const auto listens = [&] {
        const int fd = connect_to(socket);
        ucred peer{};
        socklen_t size = sizeof peer;
        const bool same = fd >= 0 && ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
                          peer.pid == pid;
        if (fd >= 0) ::close(fd);
        return same;
    };
    const int process = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    // It listens still, so the descriptor is its own.
    if (process >= 0 && listens()) return process;
    if (process >= 0) ::close(process);
    return -1;
}

// nbdkit listens before the plugin has opened the disk, but greets only afterwards.
bool greeted(int fd) {
    pollfd look{fd, POLLIN, 0};
    if (::poll(&look, 1, 10) <= 0) return false;
    std::array<char, 8> magic{};
    return ::read(fd, magic.data(), magic.size()) == 8 &&
           std::string_view(magic.data(), 8) == "NBDMAGIC";
}

bool wait_until_served(const std::string& socket, pid_t child) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
        if (::waitpid(child, nullptr, WNOHANG) == child) return false;
        const int fd = connect_to(socket);
        const bool fine = fd >= 0 && greeted(fd);
        if (fd >= 0) ::close(fd);
        if (fine) return true;
        std::this_thread::sleep_for(kLook);
    }
    ::kill(child, SIGTERM);
    ::waitpid(child, nullptr, 0);
    return false;
}

// What nbdkit said, without its own words before it.
std::string last_words(int file) {
    std::array<char, 4096> part;
    const ssize_t size = ::pread(file, part.data(), part.size(), 0);
    std::string text(part.data(), static_cast<std::size_t>(std::max(size, ssize_t{0})));
    text = text.substr(0, text.find('\n'));
    const std::string_view mark = "error: ";
    const auto at = text.find(mark);
    if (at != std::string::npos) text = text.substr(at + mark.size());
    return text.empty() ? "nbdkit did not come up" : text;
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
    const std::string plugin = library_folder() + "/nbdkit-feroce-plugin.so";
    if (::access(plugin.c_str(), R_OK) != 0)
        return complain("the nbdkit plugin is not where it was installed: " + plugin);
    if (::access(options.socket.c_str(), F_OK) == 0)
        return complain(options.socket + " exists; detach it, or name another with --socket");
    const int said = ::memfd_create("nbdkit-says", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (said < 0) return complain(std::strerror(errno));
    const auto words = command(options, plugin);
    const pid_t child = ::fork();
    if (child == 0 && options.foreground) become_nbdkit(words);
    if (child == 0) keep_nbdkit(words, options.socket, said);
    if (!wait_until_served(options.socket, child)) {
        forget(options.socket);
        return complain(last_words(said));
    }
    ::fcntl(said, F_ADD_SEALS, F_SEAL_GROW);  // Nobody would read what it says later.
    fmt::print("{}{}\n", kUri, options.socket);
    std::fflush(stdout);
    if (!options.foreground) return 0;
    int status = 0;
    ::waitpid(child, &status, 0);
    forget(options.socket);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int detach_nbd(const std::string& socket_or_uri) {
    const bool is_uri = socket_or_uri.starts_with(kUri);
    const std::string socket = is_uri ? socket_or_uri.substr(kUri.size()) : socket_or_uri;
    pid_t pid = 0;
    std::ifstream(socket + ".pid") >> pid;
    if (pid <= 0) return complain(fmt::format("{} is no disk of feroce attach", socket));
    const int process = process_of(socket, pid);
    if (process < 0) {
        forget(socket);  // Somebody has killed all of it.
        return 0;
    }
    if (::syscall(SYS_pidfd_send_signal, process, SIGTERM, nullptr, 0) != 0 && errno != ESRCH)
        return complain(fmt::format("nbdkit ({}) cannot be ended: {}", pid, std::strerror(errno)));
    pollfd ended{process, POLLIN, 0};
    const int patience = static_cast<int>(std::chrono::milliseconds(kPatience).count());
    if (::poll(&ended, 1, patience) != 1)
        return complain(
            fmt::format("nbdkit ({}) does not end: an NBD client still uses the disk", pid));
    ::close(process);
    // Its keeper tidies up, if it lives.
    const auto end = std::chrono::steady_clock::now() + kTidying;
    while (::access((socket + ".pid").c_str(), F_OK) == 0 && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(kLook);
    forget(socket);
    return 0;
}

}  // namespace

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
