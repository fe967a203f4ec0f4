// Files and block devices. A request is done in steps, each one call of the kernel: perhaps a sync
// before, the thing itself (again for the rest if it was done in part), and perhaps a sync after.
// The calls go through the loop's io_uring, or through threads where the kernel refuses one.
//
// Linux tells a descriptor once that pages could not be written. So that no report is taken by
// another caller, syncs have a descriptor of their own and are made one after the other; each
// serves all requests that waited when it began. So that no report is lost with a killed server,
// they and writes with FUA are marked, and made by threads: to set the mark may block. A write with
// FUA that fails by itself is judged by a sync: its descriptor may have been told of a loss all the
// same.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "base/assert.hpp"
#include "block/call_pool.hpp"
#include "block/file_call.hpp"
#include "block/io_ring.hpp"
#include "block/open_file.hpp"

namespace feroce::block {

namespace {

constexpr std::size_t kZeroes = 64 << 10;

// Where a request is, from which its next call follows at any time: a ring that gives up asks for
// it again. Only advance() and what it calls go on to another step.
enum class Step : std::uint8_t { SyncBefore, Main, Fill, SyncAfter, Judge };

Step step_of(const BackendRequest& request) {
    return static_cast<Step>(request.step);
}
void go_to(BackendRequest& request, Step step) {
    request.step = static_cast<std::uint8_t>(step);
}

alignas(kDirectAlignment) std::array<std::byte, kZeroes> zeroes{};

class FileBackend final : public Backend, private FileCaller {
public:
    FileBackend(std::unique_ptr<OpenFile> file, std::shared_ptr<CallRunner> runner,
                std::shared_ptr<CallPool> pool)
        : file_(std::move(file)),
          runner_(std::move(runner)),
          pool_(std::move(pool)),
          record_(file_->record()),
          told_failures_(file_->flush_was_lost() ? 1 : 0) {
        FileCaller& caller = *this;
        sync_.owner = &caller;
    }
    ~FileBackend() override {
        // The kernel would write freed memory.
        ASSERT(in_flight_ == 0);
    }

    Shape shape() override { return file_->shape(); }
    void submit(BackendRequest& request) override;
    std::optional<WriterRecord> writer_record() override { return record_; }
    void keep(RecordRequest& request) override;

private:
    DeviceId device() const override { return file_->device(); }
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

    std::unique_ptr<OpenFile> file_;
    std::shared_ptr<CallRunner> runner_;
    std::shared_ptr<CallPool> pool_;
    BackendRequest sync_;                   // The sync that is being made,
    rdma::List<BackendRequest> synced_;     // for these.
    rdma::List<BackendRequest> want_sync_;  // For the next one.
    bool syncing_ = false;
    std::size_t left_marks_ = 0;  // Of writes with FUA that the sync is to judge.
    WriterRecord record_;
    std::uint64_t told_failures_;  // Of marked calls: their requests were told.
    std::size_t in_flight_ = 0;
};

void FileBackend::keep(RecordRequest& request) {
    // To clear the mark may block as well. These failures are in the record, or of a generation
    // before it.
    const auto save = [this, &request, failures = told_failures_] {
        try {
            return file_->save(request.record, failures);
        } catch (const std::bad_alloc&) {
            return ENOMEM;  // Out of a thread it would end the server.
        }
    };
    FileCaller& caller = *this;
    pool_->run({&caller, file_->record_device()}, save, [this, &request](int error) {
        --in_flight_;
        if (error == 0) record_ = request.record;
        request.done(request, error);
    });
    ++in_flight_;  // Not of one that run() has not taken.
}

void FileBackend::submit(BackendRequest& request) {
    if (request.kind == IoKind::SecureErase) return request.done(request, EOPNOTSUPP);
    // Nothing was written through it, and a report of another server's writes is not its to take.
    const bool syncs_nothing = file_->mark() == nullptr;
    if (syncs_nothing && request.kind == IoKind::Flush) return request.done(request, 0);
    // A file that was cut is not made longer again: what was cut off is gone, and a write behind
    // the end would hide that.
    const bool writes = request.kind != IoKind::Read && request.kind != IoKind::Flush;
    if (writes && !file_->is_device() && request.offset + request.length > file_->size())
        return request.done(request, EIO);
    FileCaller& caller = *this;
    request.owner = &caller;
    request.progress = 0;
    if (const int error = borrow_aligned(request); error != 0) return request.done(request, error);
    ++in_flight_;
    const bool first = request.preflush && request.kind != IoKind::Flush && !syncs_nothing;
    go_to(request, first ? Step::SyncBefore : Step::Main);
    call(request);
}

// Around the page cache only aligned memory can be used. That of sessions is as a rule.
int FileBackend::borrow_aligned(BackendRequest& request) const {
    request.aligned = nullptr;
    const auto at = reinterpret_cast<std::uintptr_t>(request.data.data());
    if (!file_->direct() || request.data.empty() || at % file_->block_size() == 0) return 0;
    const std::size_t room =
        (request.data.size() + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
    request.aligned = static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, room));
    if (request.aligned == nullptr) return ENOMEM;
    if (request.kind == IoKind::Write)
        std::copy(request.data.begin(), request.data.end(), request.aligned);
    return 0;
}

bool FileBackend::syncs(const BackendRequest& request) const {
    const auto step = step_of(request);
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
        if (step_of(*request) == Step::Judge) ++left_marks_;
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
    // Requests that are told may submit more, and have the back end destroyed with the last.
    while (BackendRequest* const request = told.pop_front())
        if (advance(*request, result)) call(*request);
}

void FileBackend::called(BackendRequest& request, int result) {
    if (&request == &sync_) return end_sync(result);
    if (advance(request, result)) call(request);
}

FileCall FileBackend::next_call(const BackendRequest& request) const {
    const FileCall sync{.what = FileCall::What::Sync,
                        .fd = file_->sync_fd(),
                        .mark = file_->mark(),
                        .left_marks = left_marks_};
    if (&request == &sync_) return sync;
    switch (step_of(request)) {
        case Step::Main:
            return main_call(request);
        case Step::Fill: {
            const std::uint64_t left = request.length - request.progress;
            return {FileCall::What::Write,   file_->fd(),
                    zeroes.data(),           request.offset + request.progress,
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
    const int fd = file_->fd();
    const std::uint64_t at = request.offset + request.progress;
    const std::uint64_t left = request.length - request.progress;
    std::byte* const from = request.aligned != nullptr ? request.aligned : request.data.data();
    std::byte* const data = from + request.progress;
    switch (request.kind) {
        case IoKind::Read:
            return {FileCall::What::Read, fd, data, at, left, 0};
        case IoKind::Write:
            if (request.fua)
                return {FileCall::What::Write, fd, data, at, left, RWF_DSYNC, file_->mark()};
            return {FileCall::What::Write, fd, data, at, left, 0};
        case IoKind::Discard:
        case IoKind::WriteZeroes: {
            const int how = request.no_unmap ? FALLOC_FL_ZERO_RANGE : FALLOC_FL_PUNCH_HOLE;
            return {FileCall::What::Allocate, fd, nullptr, at, left, how | FALLOC_FL_KEEP_SIZE};
        }
        case IoKind::Flush:
        case IoKind::SecureErase:
            break;
    }
    return {.what = FileCall::What::Sync, .fd = fd};
}

bool FileBackend::advance(BackendRequest& request, int result) {
    const auto step = step_of(request);
    const bool is_marked = step == Step::Main && request.fua && request.kind == IoKind::Write;
    if (is_marked && file_->mark() != nullptr && result < 0)
        return after_failed_fua(request, result);
    if (result == -EINTR) return true;
    switch (step) {
        case Step::SyncBefore:
            request.lost = result < 0;
            if (result < 0) return finish(request, -result);
            go_to(request, Step::Main);
            return true;
        case Step::SyncAfter:
            request.lost = result < 0;
            break;
        case Step::Judge:
            request.lost = result < 0;
            if (result < 0) return finish(request, -result);
            if (request.own_error != EINTR) return finish(request, request.own_error);
            go_to(request, Step::Main);
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
        go_to(request, Step::Judge);
        return true;
    }
    request.lost = true;
    ++told_failures_;
    return finish(request, -result);
}

bool FileBackend::after_main(BackendRequest& request, int result) {
    const bool fills = step_of(request) == Step::Fill;
    if (result == -EOPNOTSUPP && request.kind == IoKind::WriteZeroes && !fills) {
        go_to(request, Step::Fill);
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
    go_to(request, Step::SyncAfter);
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

// With the loop's threads and its ring.
std::shared_ptr<Backend> serve(rdma::Loop& loop, std::unique_ptr<OpenFile> file,
                               const FileOptions& options) {
    if (!file->remark().empty() && options.tell) options.tell(file->remark());
    auto pool = CallPool::of(loop);
    std::shared_ptr<CallRunner> runner = pool;
    if (options.io_uring)
        if (auto ring = IoRing::of(loop)) runner = std::move(ring);
    return std::make_shared<FileBackend>(std::move(file), std::move(runner), std::move(pool));
}

}  // namespace

rdma::Result<std::shared_ptr<Backend>> file_backend(rdma::Loop& loop, const std::string& path,
                                                    const FileOptions& options) {
    auto file = OpenFile::open(path, options, loop.runtime().random());
    if (!file) return file.error();
    return serve(loop, *std::move(file), options);
}

rdma::Task<rdma::Result<std::shared_ptr<Backend>>> open_file_backend(rdma::Loop& loop,
                                                                     std::string path,
                                                                     FileOptions options) {
    const auto pool = CallPool::of(loop);
    auto open = [path, options, random = loop.runtime().random()] {
        return OpenFile::open(path, options, random);
    };
    const CallOwner owner{.alone = true};  // Only the file itself can tell on which device it is.
    auto file = co_await pool->call(owner, std::move(open));
    if (!file) co_return file.error();
    if (!*file) co_return (*file).error();
    co_return serve(loop, **std::move(file), options);
}

}  // namespace feroce::block
