// See mark_file.hpp.
#include "block/mark_file.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "block/durable_file.hpp"

namespace feroce::block {

namespace {

constexpr long kXfsMagic = 0x58465342;  // Not in <linux/magic.h> of every distribution.

// Always of one length.
std::string mark_title(std::uint64_t backing, std::uint64_t boot) {
    std::array<char, 128> text{};
    std::snprintf(text.data(), text.size(),
                  "feroce-flush-mark 1\nbacking %016llx\nboot %016llx\nstate ",
                  static_cast<unsigned long long>(backing), static_cast<unsigned long long>(boot));
    return text.data();
}

int write_at(int fd, const std::string& text, std::size_t at) {
    ssize_t wrote = 0;
    do wrote = ::pwrite(fd, text.data(), text.size(), static_cast<off_t>(at));
    while (wrote < 0 && errno == EINTR);
    if (wrote < 0) return errno;
    return static_cast<std::size_t>(wrote) == text.size() ? 0 : EIO;
}

// It is written in place: if it were another file's second name, that file would be overwritten.
bool is_ours_alone(int fd) {
    struct stat status {};
    return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 1 &&
           status.st_uid == ::geteuid();
}

bool kernel_is_at_least(int major, int minor) {
    utsname system{};
    int has_major = 0, has_minor = 0;
    if (::uname(&system) != 0 || std::sscanf(system.release, "%d.%d", &has_major, &has_minor) != 2)
        return false;
    return std::pair(has_major, has_minor) >= std::pair(major, minor);
}

// Those whose failed write-backs are known to reach the file system's own record.
bool remembers_failures(int fd) {
    struct statfs system {};
    if (::fstatfs(fd, &system) != 0) return false;
    const std::array<long, 5> known{EXT4_SUPER_MAGIC, kXfsMagic, BTRFS_SUPER_MAGIC,
                                    F2FS_SUPER_MAGIC, TMPFS_MAGIC};
    return std::find(known.begin(), known.end(), static_cast<long>(system.f_type)) != known.end();
}

// The kernel tells the first that asks. The other disks of this server that lie on the same file
// system are told by us.
int ask_once(int fd, const struct stat& status) {
    static std::mutex mutex;
    static std::map<dev_t, int> failed;  // Its errno. Guarded by the mutex.
    struct statfs system {};
    // Subvolumes have numbers of their own on the one file system.
    const bool one = ::fstatfs(fd, &system) == 0 && system.f_type == BTRFS_SUPER_MAGIC;
    const std::lock_guard lock(mutex);
    int& error = failed[one ? 0 : status.st_dev];
    if (::syncfs(fd) != 0) error = errno;
    return error;
}

}  // namespace

MarkFile::MarkFile(int fd, std::uint64_t backing, std::uint64_t boot)
    : fd_(fd), title_(mark_title(backing, boot)) {}

MarkFile::~MarkFile() {
    ::close(fd_);
}

rdma::Result<std::unique_ptr<MarkFile>> MarkFile::open(const std::string& record,
                                                       std::uint64_t backing, std::uint64_t boot) {
    const std::string path = record + ".flush";
    const auto failed = [&](int error) {
        return rdma::Error(error, "its flush mark " + path + " cannot be kept (" +
                                      std::strerror(error) +
                                      "); give a folder for it with state=FOLDER");
    };
    constexpr int kHow = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = ::open(path.c_str(), kHow);
    if (fd < 0 && errno == ENOENT) {
        const std::string text = mark_title(backing, boot) + static_cast<char>(MarkState::Clear);
        if (const int error = save_durably(path, text + '\n'); error != 0) return failed(error);
        fd = ::open(path.c_str(), kHow);
    }
    if (fd < 0) return failed(errno);
    auto mark = std::make_unique<MarkFile>(fd, backing, boot);
    if (!is_ours_alone(fd))
        return rdma::Error(EPERM, "its flush mark " + path +
                                      " is no plain file of this server's user with one name; "
                                      "move it away, or give another folder with state=FOLDER");
    if (const int error = mark->load(); error != 0) return failed(error);
    return mark;
}

int MarkFile::load() {
    std::array<char, 256> text{};
    const ssize_t size = ::pread(fd_, text.data(), text.size() - 1, 0);
    if (size < 0) return errno;
    const std::string has(text.data(), static_cast<std::size_t>(size));
    // If not: of another backing store, of another boot, or what a crash of the machine has left.
    if (has.starts_with(title_)) {
        const auto state = static_cast<MarkState>(has.c_str()[title_.size()]);
        const bool known = state == MarkState::Clear || state == MarkState::InFlight;
        found_ = known ? state : MarkState::Failed;
    }
    const std::string right = title_ + static_cast<char>(found_) + '\n';
    if (has == right) return 0;
    if (const int error = write_at(fd_, right, 0); error != 0) return error;
    return ::ftruncate(fd_, static_cast<off_t>(right.size())) == 0 ? 0 : errno;
}

int MarkFile::put(MarkState state) {
    return write_at(fd_, std::string(1, static_cast<char>(state)), title_.size());
}

WriteBack ask_write_back(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return {false, std::strerror(errno)};
    if (S_ISBLK(status.st_mode))
        return {false, "the kernel does not remember whether writes to a block device failed"};
    if (!remembers_failures(fd) || !kernel_is_at_least(5, 8))
        return {false, "this kernel or file system does not remember whether writes failed"};
    const int error = ask_once(fd, status);
    if (error == 0) return {true, {}};
    return {false,
            std::string("its file system could not write something: ") + std::strerror(error)};
}

}  // namespace feroce::block
