#include "process/state_page.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>

#include "process/state_layout.hpp"

namespace feroce::process {
namespace {

constexpr std::size_t kFileMax = kSnapshotOffset + kSnapshotMax;
constexpr std::size_t kStep = 16 * 1024;

std::atomic_ref<std::uint32_t> word(std::byte* bytes, std::size_t offset) {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(bytes + offset));
}

void wake_all(std::byte* bytes, std::size_t offset) {
    ::syscall(SYS_futex, bytes + offset, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::string path_for(std::uint32_t user) {
    return "/dev/shm/feroce-" + std::to_string(user);
}

// Where that name is not ours: two user namespaces may have the same number for different users.
std::string other_path_for(std::uint32_t user) {
    struct stat info {};
    (void)::stat("/proc/self/ns/user", &info);
    return path_for(user) + "-" + std::to_string(info.st_ino);
}

Result<std::string> check_directory(const std::string& path, std::uint32_t user) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) return Error{errno, "/dev/shm cannot be read"};
    if (!S_ISDIR(info.st_mode) || info.st_uid != user || (info.st_mode & 0077) != 0)
        return Error{EPERM, "our directory in /dev/shm is another user's, or open to others"};
    return path;
}

Result<std::string> make_directory(const std::string& path, std::uint32_t user) {
    const bool made = ::mkdir(path.c_str(), 0700) == 0;
    if (!made && errno != EEXIST) return Error{errno, "/dev/shm cannot be written to"};
    Result<std::string> directory = check_directory(path, user);
    if (!directory && made) ::rmdir(path.c_str());  // We are another user by now.
    return directory;
}

}  // namespace

Result<std::string> user_directory(std::uint32_t user) {
    Result<std::string> directory = make_directory(path_for(user), user);
    if (directory || directory.error().code != EPERM) return directory;
    return make_directory(other_path_for(user), user);
}

Result<std::string> existing_directory(std::uint32_t user) {
    Result<std::string> directory = check_directory(path_for(user), user);
    if (directory || directory.error().code != EPERM) return directory;
    return check_directory(other_path_for(user), user);
}

Result<std::unique_ptr<StatePage>> StatePage::create(std::uint32_t user) {
    const Result<std::string> directory = user_directory(user);
    if (!directory) return directory.error();
    prune_dead_pages(*directory, user);
    const std::string pid = std::to_string(::getpid());
    const std::string draft = *directory + "/.new-" + pid;
    std::unique_ptr<StatePage> page(new StatePage);
    page->path_ = *directory + "/" + pid;
    ::unlink(draft.c_str());
    page->fd_ = ::open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat info {};
    if (page->fd_ < 0 || ::fstat(page->fd_, &info) != 0)
        return Error{errno, "/dev/shm refuses a new file"};
    page->device_ = info.st_dev;
    page->inode_ = info.st_ino;
    // Room for the largest. What the file does not have yet cannot be read, so that a tool that
    // reads all readable memory (Valgrind's search for leaks, at a program's end) meets no SIGBUS
    // there.
    void* mapped = ::mmap(nullptr, kFileMax, PROT_NONE, MAP_SHARED | MAP_NORESERVE, page->fd_, 0);
    if (mapped != MAP_FAILED) page->bytes_ = static_cast<std::byte*>(mapped);
    // Under its own name it is only seen locked.
    struct flock lock {};
    lock.l_type = F_WRLCK;
    const bool ready = mapped != MAP_FAILED && ::fcntl(page->fd_, F_SETLK, &lock) == 0 &&
                       page->make_room(kSnapshotOffset) &&
                       ::rename(draft.c_str(), page->path_.c_str()) == 0;
    if (!ready) {
        ::unlink(draft.c_str());
        return Error{ENOSPC, "/dev/shm is full"};
    }
    unmark(*directory);  // Of one that had this number before.
    ::madvise(mapped, kFileMax, MADV_DONTFORK);
    ::madvise(mapped, kFileMax, MADV_DONTDUMP);
    return page;
}

StatePage::~StatePage() {
    if (bytes_ != nullptr) ::munmap(bytes_, kFileMax);
    if (owns_descriptor()) ::close(fd_);
}

// Memory is taken beforehand: a full /dev/shm would else be a SIGBUS.
bool StatePage::make_room(std::size_t size) {
    if (size <= size_) return true;
    const std::size_t wanted = (size + kStep - 1) / kStep * kStep;
    if (wanted > kFileMax || !owns_descriptor()) return false;
    if (::posix_fallocate(fd_, 0, static_cast<off_t>(wanted)) != 0) return false;
    if (::mprotect(bytes_, wanted, PROT_READ | PROT_WRITE) != 0) return false;
    size_ = wanted;
    return true;
}

bool StatePage::owns_descriptor() const {
    struct stat info {};
    if (fd_ < 0 || ::fstat(fd_, &info) != 0) return false;
    return info.st_dev == device_ && info.st_ino == inode_;
}

bool StatePage::write(ByteView snapshot) {
    if (!make_room(kSnapshotOffset + snapshot.size())) return false;
    const auto sequence = word(bytes_, kSequenceOffset);
    const std::uint32_t odd = sequence.load(std::memory_order_relaxed) | 1;
    sequence.store(odd, std::memory_order_relaxed);
    // release: whoever sees a byte of the new snapshot sees the odd number too.
    std::atomic_thread_fence(std::memory_order_release);
    const auto length = static_cast<std::uint32_t>(snapshot.size());
    std::memcpy(bytes_ + kLengthOffset, &length, sizeof length);
    std::memcpy(bytes_ + kSnapshotOffset, snapshot.data(), snapshot.size());
    // release: whoever sees the even number sees the whole snapshot.
    sequence.store(odd + 1, std::memory_order_release);
    wake_all(bytes_, kSequenceOffset);
    return true;
}

void StatePage::note_connection(Qpn qpn, Qpn peer) {
    const auto entry = [&](std::uint32_t i) {
        std::byte* const place = bytes_ + kConnectionsOffset + (qpn.raw + i) % kConnections * 8;
        return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(place));
    };
    const std::uint64_t wanted = std::uint64_t{peer.raw} << 32 | qpn.raw;
    // relaxed: an entry is complete by itself. Other threads change those of other queue pairs.
    for (std::uint32_t i = 0; i < kConnectionTries; ++i) {
        std::uint64_t old = entry(i).load(std::memory_order_relaxed);
        if ((old & 0xffff'ffff) == qpn.raw)
            entry(i).compare_exchange_strong(old, 0, std::memory_order_relaxed);
    }
    if (peer.raw == 0) return;
    for (std::uint32_t i = 0; i < kConnectionTries; ++i) {
        std::uint64_t none = 0;
        if (entry(i).compare_exchange_strong(none, wanted, std::memory_order_relaxed)) return;
    }
    entry(0).store(wanted, std::memory_order_relaxed);
}

void StatePage::forget_connections() {
    std::memset(bytes_ + kConnectionsOffset, 0, kConnections * 8);
}

void StatePage::note(std::size_t index, const StateReason& reason, std::string_view sentence) {
    std::byte* const place = bytes_ + kNotesOffset + index * sizeof(PageNote);
    PageNote note;
    const auto sequence = word(place, offsetof(PageNote, sequence));
    const std::uint32_t odd = sequence.load(std::memory_order_relaxed) | 1;
    note.sequence = odd;
    note.count = 1;
    note.qpn = reason.qpn;
    note.peer_qpn = reason.peer_qpn;
    note.psn = reason.psn;
    note.kind = static_cast<std::uint8_t>(reason.kind);
    note.peer_silent = reason.peer_silent ? 1 : 0;
    note.with_peer = reason.with_peer ? 1 : 0;
    note.minor = reason.minor ? 1 : 0;
    note.source = reason.source;
    note.destination = reason.destination;
    note.length = static_cast<std::uint32_t>(sentence.copy(note.text.data(), note.text.size()));
    // As in write().
    sequence.store(odd, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    std::memcpy(place, &note, sizeof note);
    sequence.store(odd + 1, std::memory_order_release);
}

void StatePage::count_note(std::size_t index, std::uint32_t count) {
    std::byte* const place = bytes_ + kNotesOffset + index * sizeof(PageNote);
    // relaxed: it means something whenever it is read.
    word(place, offsetof(PageNote, count)).store(count, std::memory_order_relaxed);
}

void StatePage::remove() {
    ::unlink(path_.c_str());
}

void StatePage::abandon() {
    if (owns_descriptor()) ::close(fd_);
    fd_ = -1;
}

std::uint32_t StatePage::request() const {
    // relaxed: it only says that somebody asks.
    return word(bytes_, kRequestOffset).load(std::memory_order_relaxed);
}

void StatePage::wait_for_request(std::uint32_t seen) {
    ::syscall(SYS_futex, bytes_ + kRequestOffset, FUTEX_WAIT, seen, nullptr, nullptr, 0);
}

void StatePage::interrupt() {
    word(bytes_, kRequestOffset).fetch_add(1, std::memory_order_relaxed);
    wake_all(bytes_, kRequestOffset);
}

}  // namespace feroce::process
