// See book_keeper.hpp.
#include "block/book_keeper.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>
#include <utility>

#include "block/durable_file.hpp"

namespace feroce::block {

namespace {

// A server that ends removes its lock: one that was opened just before is nobody's.
bool is_at(int fd, const std::string& path) {
    struct stat one {};
    struct stat other {};
    return ::fstat(fd, &one) == 0 && ::stat(path.c_str(), &other) == 0 &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

DeviceId device_of(int fd) {
    struct stat status {};
    return ::fstat(fd, &status) == 0 ? DeviceId{status.st_dev} : DeviceId{};
}

// EBUSY: another server has it.
int lock_once(const std::string& path, int& error) {
    error = 0;
    const int lock = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock >= 0 && ::flock(lock, LOCK_EX | LOCK_NB) == 0 && is_at(lock, path)) return lock;
    error = lock < 0 ? errno : EBUSY;
    if (lock >= 0) ::close(lock);
    return -1;
}

// The kernel lets go of a killed server's lock a moment after it has ended.
int lock_patiently(const std::string& path, int& error) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    for (;;) {
        const int lock = lock_once(path, error);
        if (error != EBUSY || std::chrono::steady_clock::now() > end) return lock;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

}  // namespace

rdma::Result<std::unique_ptr<BookKeeper>> BookKeeper::open(rdma::Loop& loop, std::string path,
                                                           ClientBook& book) {
    // Not the book itself: that is another file after each save.
    const std::string lock_path = path + ".lock";
    int error = 0;
    const int lock = lock_patiently(lock_path, error);
    if (error == EBUSY)
        return rdma::Error(EBUSY, "another server has locked " + lock_path +
                                      "; give this one a folder of its own by STATE_DIRECTORY");
    if (lock < 0)
        return rdma::Error(error, lock_path + " cannot be opened: " + std::strerror(error));
    std::unique_ptr<BookKeeper> keeper(new BookKeeper(loop, std::move(path), book, lock));
    std::ifstream in(keeper->path_);
    if (!in && errno != ENOENT)
        return rdma::Error(errno, keeper->path_ + " cannot be read: " + std::strerror(errno));
    if (in && !book.parse(in))
        return rdma::Error(EINVAL, keeper->path_ +
                                       " is no client book of ours; move it away: the kernel's "
                                       "clients that are connected can then map no further disks "
                                       "in their sessions");
    keeper->saved_ = book.version();
    return keeper;
}

BookKeeper::BookKeeper(rdma::Loop& loop, std::string path, ClientBook& book, int lock)
    : pool_(CallPool::of(loop)),
      path_(std::move(path)),
      book_(book),
      lock_(lock),
      device_(device_of(lock)),
      saved_(book.version()) {}

BookKeeper::~BookKeeper() {
    const std::string lock_path = path_ + ".lock";
    if (is_at(lock_, lock_path)) ::unlink(lock_path.c_str());
    ::close(lock_);
}

void BookKeeper::settle(ExportedDisk::Waiter& waiter) {
    if (book_.version() == saved_) return waiter.on_kept(0);
    waiting_.push_back(waiter);
    settle();
}

void BookKeeper::settle() {
    if (book_.version() == saved_) return;
    again_ = saving_;
    if (!saving_) save();
}

void BookKeeper::save() {
    saving_ = true;
    again_ = false;
    told_.splice(waiting_);
    const std::uint64_t version = book_.version();
    try {
        const auto work = [path = path_, text = book_.text()] {
            try {
                return save_durably(path, text);
            } catch (const std::bad_alloc&) {
                return ENOMEM;  // Out of a thread it would end the server.
            }
        };
        pool_->run({this, device_}, work, [this, version](int error) { saved(version, error); });
    } catch (const std::bad_alloc&) {
        saved(version, ENOMEM);
    }
}

void BookKeeper::saved(std::uint64_t version, int error) {
    saving_ = false;
    if (error == 0) saved_ = version;
    rdma::List<ExportedDisk::Waiter> told;
    told.splice(told_);
    while (ExportedDisk::Waiter* const waiter = told.pop_front()) waiter->on_kept(error);
    if (again_ && !saving_) save();
}

}  // namespace feroce::block
