// Files and block devices. A request is done in steps, each one call of the kernel: perhaps a sync
// before, the thing itself (again for the rest if it was done in part), and perhaps a sync after.
// The calls go through the loop's io_uring, or through threads where the kernel refuses one.
//
// Linux tells a descriptor once that pages could not be written. So that no report is taken by
// another caller, syncs have a descriptor of their own and are made one after the other; each
// serves all who waited when it began. So that no report is lost with a killed server, they and
// writes with FUA are marked, and made by threads: to set the mark may block. A write with FUA that
// fails by itself is judged by a sync: its descriptor may have been told of a loss all the same.
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "base/assert.hpp"
#include "block/call_pool.hpp"
#include "block/file_call.hpp"
#include "block/io_ring.hpp"
#include "block/mark_file.hpp"
#include "block/record_file.hpp"

namespace feroce::block {

namespace {

constexpr std::size_t kAlignment = 4096;
constexpr std::size_t kZeroes = 64 << 10;

enum class Step : std::uint8_t { SyncBefore, Main, Fill, SyncAfter, Judge };

alignas(kAlignment) std::array<std::byte, kZeroes> zeroes{};

// What survives in the kernel's caches does so until the machine starts anew.
std::uint64_t boot_identity() {
    std::ifstream in("/proc/sys/kernel/random/boot_id");
    std::string text;
    in >> text;
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return text.empty() ? 0 : hash;
}

class FileBackend final : public Backend, private FileCaller {
public:
    FileBackend(int fd, std::shared_ptr<CallRunner> runner, std::shared_ptr<CallPool> pool)
        : fd_(fd), runner_(std::move(runner)), pool_(std::move(pool)) {
        const std::string again = "/proc/self/fd/" + std::to_string(fd);
        sync_fd_ = ::open(again.c_str(), (::fcntl(fd, F_GETFL) & O_ACCMODE) | O_CLOEXEC);
        FileCaller& caller = *this;
        sync_.owner = &caller;
    }
    ~FileBackend() override {
        // The kernel would write freed memory.
        ASSERT(in_flight_ == 0);
        ::close(fd_);
        if (sync_fd_ >= 0) ::close(sync_fd_);
    }

    rdma::Result<> probe(const FileOptions& options);
    // Finds the writer record, or makes one.
    rdma::Result<> remember(const std::string& path, const FileOptions& options,
                            std::uint64_t random);
    Shape shape() override;
    void submit(BackendRequest& request) override;
    std::optional<WriterRecord> writer_record() override { return record_; }
    void keep(RecordRequest& request) override;

private:
    rdma::Result<> find_mark(const std::string& path, const FileOptions& options);
    rdma::Result<> lock();
    rdma::Result<> probe_device();
    rdma::Result<> probe_size();
    bool probe_direct();
    bool reads(std::size_t size) const;
    std::uint64_t size() const;
    int sync_fd() const { return sync_fd_ >= 0 ? sync_fd_ : fd_; }

    FileCall next_call(const BackendRequest& request) const override;
    FileCall main_call(const BackendRequest& request) const;
    bool syncs(const BackendRequest& request) const;
    void call(BackendRequest& request);
    void call_by_thread(BackendRequest& request);
    void begin_sync();
    void end_sync(int result);
    int borrow_aligned(BackendRequest& request) const;
    void called(BackendRequest& request, int result) override;
    // What a call's result means: true if another is to follow.
    bool advance(BackendRequest& request, int result);
    bool after_main(BackendRequest& request, int result);
    bool after_failed_fua(BackendRequest& request, int result);
    bool finish(BackendRequest& request, int error);

    int fd_;
    int sync_fd_;
    std::shared_ptr<CallRunner> runner_;
    std::shared_ptr<CallPool> pool_;
    BackendRequest sync_;                   // The sync that is being made,
    rdma::List<BackendRequest> synced_;     // for these.
    rdma::List<BackendRequest> want_sync_;  // For the next one.
    bool syncing_ = false;
    std::size_t left_marks_ = 0;  // Of writes with FUA that the sync is to judge.
    bool direct_ = false;
    Shape shape_;
    bool is_device_ = false;
    std::uint64_t identity_ = 0;  // Of the backing store.
    WriterRecord record_;
    std::optional<RecordFile> record_file_;  // Not for one that is only read,
    std::unique_ptr<MarkFile> mark_;         // as this.
    std::uint64_t told_failures_ = 0;        // Of marked calls: their requests were told.
    std::size_t in_flight_ = 0;
};

rdma::Result<> FileBackend::probe(const FileOptions& options) {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) return rdma::Error(errno, std::strerror(errno));
    is_device_ = S_ISBLK(status.st_mode);
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
        is_device_ || options.read_only || ::fallocate(fd_, punch, end, kAlignment) == 0;
    shape_.discard_granularity = punches ? std::max(shape_.logical_block, 4096u) : 0;
    return {};
}

// Under whatever name and by whatever server: one writes.
rdma::Result<> FileBackend::lock() {
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK) return rdma::Error(errno, std::strerror(errno));
    return rdma::Error(EBUSY,
                       "it is exported for writing already, under another name or by another "
                       "server; export it once, or for reading (ro)");
}

rdma::Result<> FileBackend::probe_size() {
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

rdma::Result<> FileBackend::remember(const std::string& path, const FileOptions& options,
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
    if (record_.store != 0) return find_mark(path, options);
    record_.store = random | 1;
    if (const int error = record_file_->save(record_, identity_); error != 0)
        return rdma::Error(error, "its writer record " + record_file_->path() +
                                      " cannot be kept (" + std::strerror(error) +
                                      "); give a folder for it with state=FOLDER");
    return find_mark(path, options);
}

// Whether a predecessor was killed after the kernel may have told it of a loss.
rdma::Result<> FileBackend::find_mark(const std::string& path, const FileOptions& options) {
    auto opened = MarkFile::open(record_file_->path(), identity_, shape_.cache_identity);
    if (!opened) return opened.error();
    mark_ = *std::move(opened);
    WriteBack answer{.why = "what it wrote was lost, or not known to be safe"};
    const auto is_fine = [&] { return (answer = ask_write_back(sync_fd())).fine; };
    if (!mark_->flush_was_lost(mark_->found(), is_fine)) return {};
    told_failures_ = 1;
    if (!record_.flush_failed && options.tell)
        options.tell(path + ": its server was killed while it flushed, and " + answer.why +
                     "; the client's flushes fail until it closes the disk and opens it again. "
                     "Look for errors of the disk in the kernel's log (dmesg)");
    record_.flush_failed = true;
    // If there is no room for it now, the mark stays until there is.
    if (record_file_->save(record_, identity_) == 0) mark_->recorded(told_failures_);
    return {};
}

void FileBackend::keep(RecordRequest& request) {
    ++in_flight_;
    // To clear the mark may block as well. These failures are in the record, or of a generation
    // before it.
    const auto save = [this, &request, failures = told_failures_] {
        try {
            if (!record_file_) return EROFS;
            const int error = record_file_->save(request.record, identity_);
            if (error == 0 && mark_ != nullptr) mark_->recorded(failures);
            return error;
        } catch (const std::bad_alloc&) {
            return ENOMEM;  // Out of a thread it would end the server.
        }
    };
    FileCaller& caller = *this;
    pool_->run(&caller, save, [this, &request](int error) {
        --in_flight_;
        if (error == 0) record_ = request.record;
        request.done(request, error);
    });
}

rdma::Result<> FileBackend::probe_device() {
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
bool FileBackend::probe_direct() {
    if (::fcntl(fd_, F_SETFL, O_DIRECT) != 0) return false;
    if (reads(shape_.logical_block)) return true;
    if (is_device_ || !reads(kAlignment)) return false;
    shape_.logical_block = kAlignment;
    return true;
}

bool FileBackend::reads(std::size_t bytes) const {
    const std::unique_ptr<void, void (*)(void*)> buffer(std::aligned_alloc(kAlignment, kAlignment),
                                                        std::free);
    return ::pread(fd_, buffer.get(), bytes, 0) >= 0;
}

std::uint64_t FileBackend::size() const {
    std::uint64_t bytes = 0;
    struct stat status {};
    if (is_device_) return ::ioctl(fd_, BLKGETSIZE64, &bytes) == 0 ? bytes : 0;
    return ::fstat(fd_, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

Shape FileBackend::shape() {
    shape_.size = size() / shape_.logical_block * shape_.logical_block;
    return shape_;
}

void FileBackend::submit(BackendRequest& request) {
    if (request.kind == IoKind::SecureErase) return request.done(request, EOPNOTSUPP);
    // Nothing was written through it, and a report of another server's writes is not its to take.
    const bool syncs_nothing = mark_ == nullptr;
    if (syncs_nothing && request.kind == IoKind::Flush) return request.done(request, 0);
    // A file that was cut is not made longer again: what was cut off is gone, and a write behind
    // the end would hide that.
    const bool writes = request.kind != IoKind::Read && request.kind != IoKind::Flush;
    if (writes && !is_device_ && request.offset + request.length > size())
        return request.done(request, EIO);
    FileCaller& caller = *this;
    request.owner = &caller;
    request.progress = 0;
    if (const int error = borrow_aligned(request); error != 0) return request.done(request, error);
    ++in_flight_;
    const bool first = request.preflush && request.kind != IoKind::Flush && !syncs_nothing;
    request.step = static_cast<std::uint8_t>(first ? Step::SyncBefore : Step::Main);
    call(request);
}

// Around the page cache only aligned memory can be used. That of sessions is as a rule.
int FileBackend::borrow_aligned(BackendRequest& request) const {
    request.aligned = nullptr;
    const auto at = reinterpret_cast<std::uintptr_t>(request.data.data());
    if (!direct_ || request.data.empty() || at % shape_.logical_block == 0) return 0;
    const std::size_t room = (request.data.size() + kAlignment - 1) / kAlignment * kAlignment;
    request.aligned = static_cast<std::byte*>(std::aligned_alloc(kAlignment, room));
    if (request.aligned == nullptr) return ENOMEM;
    if (request.kind == IoKind::Write)
        std::copy(request.data.begin(), request.data.end(), request.aligned);
    return 0;
}

bool FileBackend::syncs(const BackendRequest& request) const {
    const auto step = static_cast<Step>(request.step);
    return (step != Step::Main && step != Step::Fill) || request.kind == IoKind::Flush;
}

void FileBackend::call(BackendRequest& request) {
    const bool writes_through = request.fua && request.kind == IoKind::Write;
    if (!syncs(request)) return writes_through ? call_by_thread(request) : runner_->submit(request);
    want_sync_.push_back(request);
    if (!syncing_) begin_sync();
}

void FileBackend::call_by_thread(BackendRequest& request) {
    try {
        return pool_->submit(request);
    } catch (const std::bad_alloc&) {
        // Others wait for it as well, and it must not be lost: this thread has to.
    }
    called(request, next_call(request).perform());
}

void FileBackend::begin_sync() {
    syncing_ = true;
    left_marks_ = 0;
    while (BackendRequest* const request = want_sync_.pop_front()) {
        if (static_cast<Step>(request->step) == Step::Judge) ++left_marks_;
        synced_.push_back(*request);
    }
    call_by_thread(sync_);
}

void FileBackend::end_sync(int result) {
    if (result == -EINTR) return call_by_thread(sync_);
    if (result < 0) ++told_failures_;
    rdma::List<BackendRequest> told;
    told.splice(synced_);
    syncing_ = false;
    if (!want_sync_.empty()) begin_sync();
    // Those who are told may submit more, and have the back end destroyed with the last.
    while (BackendRequest* const request = told.pop_front())
        if (advance(*request, result)) call(*request);
}

void FileBackend::called(BackendRequest& request, int result) {
    if (&request == &sync_) return end_sync(result);
    if (advance(request, result)) call(request);
}

FileCall FileBackend::next_call(const BackendRequest& request) const {
    const FileCall sync{.what = FileCall::What::Sync,
                        .fd = sync_fd(),
                        .mark = mark_.get(),
                        .left_marks = left_marks_};
    if (&request == &sync_) return sync;
    switch (static_cast<Step>(request.step)) {
        case Step::Main:
            return main_call(request);
        case Step::Fill: {
            const std::uint64_t left = request.length - request.progress;
            return {FileCall::What::Write,   fd_, zeroes.data(), request.offset + request.progress,
                    std::min(left, kZeroes), 0};
        }
        case Step::SyncBefore:
        case Step::SyncAfter:
        case Step::Judge:
            break;
    }
    return sync;
}

FileCall FileBackend::main_call(const BackendRequest& request) const {
    const std::uint64_t at = request.offset + request.progress;
    const std::uint64_t left = request.length - request.progress;
    std::byte* const from = request.aligned != nullptr ? request.aligned : request.data.data();
    std::byte* const data = from + request.progress;
    switch (request.kind) {
        case IoKind::Read:
            return {FileCall::What::Read, fd_, data, at, left, 0};
        case IoKind::Write:
            if (request.fua)
                return {FileCall::What::Write, fd_, data, at, left, RWF_DSYNC, mark_.get()};
            return {FileCall::What::Write, fd_, data, at, left, 0};
        case IoKind::Discard:
        case IoKind::WriteZeroes: {
            const int how = request.no_unmap ? FALLOC_FL_ZERO_RANGE : FALLOC_FL_PUNCH_HOLE;
            return {FileCall::What::Allocate, fd_, nullptr, at, left, how | FALLOC_FL_KEEP_SIZE};
        }
        case IoKind::Flush:
        case IoKind::SecureErase:
            break;
    }
    return {.what = FileCall::What::Sync, .fd = fd_};
}

bool FileBackend::advance(BackendRequest& request, int result) {
    const auto step = static_cast<Step>(request.step);
    const bool is_marked = step == Step::Main && request.fua && request.kind == IoKind::Write;
    if (is_marked && mark_ != nullptr && result < 0) return after_failed_fua(request, result);
    if (result == -EINTR) return true;
    switch (step) {
        case Step::SyncBefore:
            request.lost = result < 0;
            if (result < 0) return finish(request, -result);
            request.step = static_cast<std::uint8_t>(Step::Main);
            return true;
        case Step::SyncAfter:
            request.lost = result < 0;
            break;
        case Step::Judge:
            request.lost = result < 0;
            if (result < 0) return finish(request, -result);
            if (request.own_error != EINTR) return finish(request, request.own_error);
            request.step = static_cast<std::uint8_t>(Step::Main);
            return true;
        case Step::Main:
        case Step::Fill:
            return after_main(request, result);
    }
    return finish(request, -result);
}

bool FileBackend::after_failed_fua(BackendRequest& request, int result) {
    if (is_own_error(result)) {
        request.own_error = -result;
        request.step = static_cast<std::uint8_t>(Step::Judge);
        return true;
    }
    request.lost = true;
    ++told_failures_;
    return finish(request, -result);
}

bool FileBackend::after_main(BackendRequest& request, int result) {
    const bool fills = request.step == static_cast<std::uint8_t>(Step::Fill);
    if (result == -EOPNOTSUPP && request.kind == IoKind::WriteZeroes && !fills) {
        request.step = static_cast<std::uint8_t>(Step::Fill);
        return true;
    }
    // The drive could not be flushed: what it had in its cache may be gone.
    request.lost = result == -EIO && request.fua;
    if (result < 0) return finish(request, -result);
    const bool moves = fills || request.kind == IoKind::Read || request.kind == IoKind::Write;
    if (moves) {
        // The file ended before its size: somebody has cut it.
        if (result == 0) return finish(request, EIO);
        request.progress += static_cast<std::uint64_t>(result);
        if (request.progress < request.length) return true;
    }
    const bool unmaps = request.kind == IoKind::Discard || request.kind == IoKind::WriteZeroes;
    if (!request.fua || !unmaps) return finish(request, 0);
    request.step = static_cast<std::uint8_t>(Step::SyncAfter);
    return true;
}

bool FileBackend::finish(BackendRequest& request, int error) {
    --in_flight_;
    if (request.aligned != nullptr && request.kind == IoKind::Read && error == 0)
        std::copy_n(request.aligned, request.data.size(), request.data.begin());
    std::free(std::exchange(request.aligned, nullptr));
    request.done(request, error);
    return false;
}

}  // namespace

rdma::Result<std::shared_ptr<Backend>> file_backend(rdma::Loop& loop, const std::string& path,
                                                    const FileOptions& options) {
    const int fd = ::open(path.c_str(), (options.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    if (fd < 0) {
        const int code = errno;
        return rdma::Error(code, path + " cannot be opened: " + std::strerror(code));
    }
    auto pool = CallPool::of(loop);
    std::shared_ptr<CallRunner> runner = pool;
    if (options.io_uring)
        if (auto ring = IoRing::of(loop)) runner = std::move(ring);
    auto backend = std::make_shared<FileBackend>(fd, std::move(runner), std::move(pool));
    auto fine = backend->probe(options);
    if (fine) fine = backend->remember(path, options, loop.runtime().random());
    if (!fine)
        return rdma::Error(fine.error().code, path + " cannot be exported: " + fine.error().why);
    return std::shared_ptr<Backend>(std::move(backend));
}

}  // namespace feroce::block
