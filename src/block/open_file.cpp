// See open_file.hpp.
#include "block/open_file.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

namespace feroce::block {

namespace {

// What survives in the kernel's caches does so until the machine starts again.
std::uint64_t boot_identity() {
    std::ifstream in("/proc/sys/kernel/random/boot_id");
    std::string text;
    in >> text;
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return text.empty() ? 0 : hash;
}

DeviceId device_of(const struct stat& status) {
    return DeviceId{S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev};
}

DeviceId device_of_folder(const std::string& file) {
    struct stat status {};
    const std::string folder = std::filesystem::path(file).parent_path();
    return ::stat(folder.c_str(), &status) == 0 ? device_of(status) : DeviceId{};
}

}  // namespace

OpenFile::OpenFile(int fd) : fd_(fd) {
    const std::string again = "/proc/self/fd/" + std::to_string(fd);
    sync_fd_ = ::open(again.c_str(), (::fcntl(fd, F_GETFL) & O_ACCMODE) | O_CLOEXEC);
}

OpenFile::~OpenFile() {
    ::close(fd_);
    if (sync_fd_ >= 0) ::close(sync_fd_);
}

rdma::Result<std::unique_ptr<OpenFile>> OpenFile::open(const std::string& path,
                                                       const FileOptions& options,
                                                       std::uint64_t random) {
    const int fd = ::open(path.c_str(), (options.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    if (fd < 0) {
        const int code = errno;
        return rdma::Error(code, path + " cannot be opened: " + std::strerror(code));
    }
    std::unique_ptr<OpenFile> file(new OpenFile(fd));
    auto fine = file->probe(options);
    if (fine) fine = file->remember(path, options, random);
    if (!fine)
        return rdma::Error(fine.error().code, path + " cannot be exported: " + fine.error().why);
    return file;
}

rdma::Result<> OpenFile::probe(const FileOptions& options) {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) return rdma::Error(errno, std::strerror(errno));
    is_device_ = S_ISBLK(status.st_mode);
    device_ = device_of(status);
    if (!is_device_ && !S_ISREG(status.st_mode))
        return rdma::Error(ENOTBLK, "it is neither a file nor a block device");
    shape_.volatile_cache = true;
    shape_.cache_identity = boot_identity();
    if (is_device_)
        if (auto known = probe_device(); !known) return known;
    if (!options.read_only)
        if (auto locked = lock(); !locked) return locked;
    direct_ = options.direct && probe_direct();
    if (!direct_) ::fcntl(fd_, F_SETFL, 0);
    if (auto whole = probe_size(); !whole) return whole;
    // At the end there is nothing to punch: this only asks whether it could be.
    const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    const auto end = static_cast<off_t>(size());
    const bool punches =
        is_device_ || options.read_only || ::fallocate(fd_, punch, end, kDirectAlignment) == 0;
    shape_.discard_granularity = punches ? std::max(shape_.logical_block, 4096u) : 0;
    return {};
}

// Under whatever name and by whatever server: one writes.
rdma::Result<> OpenFile::lock() {
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK) return rdma::Error(errno, std::strerror(errno));
    return rdma::Error(EBUSY,
                       "it is exported for writing already, under another name or by another "
                       "server; export it once, or for reading (ro)");
}

rdma::Result<> OpenFile::probe_size() {
    const std::uint64_t bytes = size();
    const std::string has = "it has " + std::to_string(bytes) + " bytes";
    if (bytes == 0) return rdma::Error(EINVAL, has + "; give it a size (truncate -s SIZE)");
    if (bytes % kSectorSize != 0)
        return rdma::Error(EINVAL, has + ", which is no whole number of blocks of 512; make it " +
                                       std::to_string(kSectorSize - bytes % kSectorSize) +
                                       " bytes longer (truncate -s %512)");
    if (bytes % shape_.logical_block == 0) return {};
    // In the larger blocks that going around the page cache needs it would lose its end.
    ::fcntl(fd_, F_SETFL, 0);
    direct_ = false;
    shape_.logical_block = kSectorSize;
    return {};
}

rdma::Result<> OpenFile::probe_device() {
    int logical = 0;
    unsigned physical = 0;
    if (::ioctl(fd_, BLKSSZGET, &logical) != 0 || ::ioctl(fd_, BLKPBSZGET, &physical) != 0)
        return rdma::Error(errno, "the device does not tell its block size");
    shape_.logical_block = static_cast<std::uint32_t>(logical);
    shape_.physical_block = physical;
    unsigned short rotational = 0;
    if (::ioctl(fd_, BLKROTATIONAL, &rotational) == 0) shape_.rotational = rotational != 0;
    return {};
}

// Whether the page cache can be gone around, and in which units. The file system tells only when
// it is tried.
bool OpenFile::probe_direct() {
    if (::fcntl(fd_, F_SETFL, O_DIRECT) != 0) return false;
    if (reads(shape_.logical_block)) return true;
    if (is_device_ || !reads(kDirectAlignment)) return false;
    shape_.logical_block = kDirectAlignment;
    return true;
}

bool OpenFile::reads(std::size_t bytes) const {
    const std::unique_ptr<void, void (*)(void*)> buffer(
        std::aligned_alloc(kDirectAlignment, kDirectAlignment), std::free);
    return ::pread(fd_, buffer.get(), bytes, 0) >= 0;
}

std::uint64_t OpenFile::size() const {
    std::uint64_t bytes = 0;
    struct stat status {};
    if (is_device_) return ::ioctl(fd_, BLKGETSIZE64, &bytes) == 0 ? bytes : 0;
    return ::fstat(fd_, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

Shape OpenFile::shape() const {
    Shape out = shape_;
    out.size = size() / shape_.logical_block * shape_.logical_block;
    return out;
}

rdma::Result<> OpenFile::remember(const std::string& path, const FileOptions& options,
                                  std::uint64_t random) {
    identity_ = backing_identity(fd_);
    RecordFile file(path, is_device_, options.state);
    auto found = file.load(identity_);
    if (!found && !options.read_only) return found.error();
    if (found && *found) record_ = **std::move(found);
    if (options.read_only) {
        if (record_.store == 0) record_.store = identity_;
        return {};
    }
    record_file_ = std::move(file);
    record_device_ = device_of_folder(record_file_->path());
    if (record_.store != 0) return find_mark(path);
    record_.store = random | 1;
    if (const int error = record_file_->save(record_, identity_); error != 0)
        return rdma::Error(error, "its writer record " + record_file_->path() +
                                      " cannot be kept (" + std::strerror(error) +
                                      "); give a folder for it with state=FOLDER");
    return find_mark(path);
}

// Whether a predecessor was killed after the kernel may have told it of a loss.
rdma::Result<> OpenFile::find_mark(const std::string& path) {
    auto opened = MarkFile::open(record_file_->path(), identity_, shape_.cache_identity);
    if (!opened) return opened.error();
    mark_ = *std::move(opened);
    WriteBack answer{.why = "what it wrote was lost, or not known to be safe"};
    const auto is_fine = [&] { return (answer = ask_write_back(sync_fd())).fine; };
    if (!mark_->flush_was_lost(mark_->found(), is_fine)) return {};
    flush_was_lost_ = true;
    if (!record_.flush_failed)
        remark_ = path + ": its server was killed while it flushed, and " + answer.why +
                  "; the client's flushes fail until it closes the disk and opens it again. "
                  "Look for errors of the disk in the kernel's log (dmesg)";
    record_.flush_failed = true;
    // If there is no room for it now, the mark stays until there is.
    (void)save(record_, 1);
    return {};
}

int OpenFile::save(const WriterRecord& record, std::uint64_t failures) const {
    if (!record_file_) return EROFS;
    const int error = record_file_->save(record, identity_);
    if (error == 0 && mark_ != nullptr) mark_->recorded(failures);
    return error;
}

}  // namespace feroce::block
