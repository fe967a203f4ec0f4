// Files whose kernel does not do as it is asked: syncs that fail or take their time, an io_uring
// that takes nothing, files that are cut, memory that is not aligned, and servers that are killed
// while they flush.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <liburing.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <semaphore>
#include <vector>

#include "block/call_pool.hpp"
#include "feroce/block/backend.hpp"
#include "feroce/task_group.hpp"
#include "rdma/test_until.hpp"

namespace {

std::atomic<int> failing_syncs = 0;
std::atomic<bool> syncs_block = false;
std::binary_semaphore sync_may_end{0};
std::atomic<int> fua_error = 0;  // Of the next write with FUA.
int refused_submits = 0;
int refusal = 0;
bool dies_in_sync = false;
thread_local bool is_loop = false;
std::atomic<int> marks_by_loop = 0, marks_by_threads = 0;
std::atomic<int> asked_systems = 0;  // By syncfs(),
int system_error = 0;                // and what it says.
std::atomic<bool> systems_block = false;
std::binary_semaphore system_may_answer{0};
std::atomic<int> waits_by_loop = 0;         // Calls that may take long.
std::atomic<dev_t> dead_device = 0;         // Its writes with FUA do not return,
std::atomic<int> stuck_writes = 0;          // so many now,
std::counting_semaphore<> dead_may_end{0};  // until they may.

void wait_if_dead(int fd) {
    struct stat status {};
    if (dead_device == 0 || ::fstat(fd, &status) != 0 || status.st_dev != dead_device) return;
    ++stuck_writes;
    dead_may_end.acquire();
}

void die_if_told() {
    if (dies_in_sync) ::kill(::getpid(), SIGKILL);
}

}  // namespace

// In place of the C library's and liburing's.
extern "C" int fdatasync(int fd) {
    die_if_told();
    if (syncs_block.load()) sync_may_end.acquire();
    if (failing_syncs.fetch_sub(1) > 0) {
        errno = EIO;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

extern "C" ssize_t pwritev2(int fd, const iovec* parts, int count, off_t at, int flags) {
    if ((flags & RWF_DSYNC) != 0) {
        die_if_told();
        wait_if_dead(fd);
        if (const int error = fua_error.exchange(0); error != 0) {
            errno = error;
            return -1;
        }
    }
    return ::syscall(SYS_pwritev2, fd, parts, count, at, 0, flags);
}

extern "C" ssize_t pwrite(int fd, const void* data, std::size_t size, off_t at) {
    ++(is_loop ? marks_by_loop : marks_by_threads);
    return ::syscall(SYS_pwrite64, fd, data, size, at);
}

extern "C" int fsync(int fd) {
    if (is_loop) ++waits_by_loop;
    return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int syncfs(int) noexcept {
    ++asked_systems;
    if (is_loop) ++waits_by_loop;
    if (systems_block) system_may_answer.acquire();
    errno = system_error;
    return system_error == 0 ? 0 : -1;
}

extern "C" int io_uring_submit(struct io_uring* ring) {
    if (refused_submits-- > 0) return refusal;
    static const auto real =
        reinterpret_cast<int (*)(struct io_uring*)>(::dlsym(RTLD_NEXT, "io_uring_submit"));
    return real(ring);
}

namespace feroce::block::file_fault_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSize = 1 << 20;

struct Asked : BackendRequest {
    Asked(IoKind what, std::uint64_t at, std::span<std::byte> bytes) {
        kind = what;
        offset = at;
        length = bytes.size();
        data = bytes;
        done = [](BackendRequest& request, int code) { static_cast<Asked&>(request).error = code; };
    }
    bool ended() const { return error >= 0; }
    int error = -1;
};

class FileFaults : public testing::TestWithParam<bool> {
protected:
    FileFaults() {
        char pattern[] = "/var/tmp/feroce-faults-XXXXXX";
        folder = ::mkdtemp(pattern);
        path = folder + "/disk";
        make_file(kSize);
        failing_syncs = refused_submits = 0;
        fua_error = 0;
        asked_systems = system_error = 0;
    }
    ~FileFaults() override { std::filesystem::remove_all(folder); }

    void make_file(std::uint64_t size) {
        const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(size)), 0);
        ::close(fd);
    }
    rdma::Result<std::shared_ptr<Backend>> try_open(FileOptions options = {}) {
        options.io_uring = GetParam();
        return file_backend(loop, path, options);
    }
    void wait_for(const Asked& asked) {
        const bool ended = rdma::poll_until(loop, [&] { return asked.ended(); });
        if (!ended) std::abort();  // The kernel would write a frame that is gone.
    }
    int ask(Backend& backend, IoKind kind, std::uint64_t at = 0, std::span<std::byte> bytes = {}) {
        Asked asked(kind, at, bytes);
        backend.submit(asked);
        wait_for(asked);
        return asked.error;
    }

    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    std::string folder;
    std::string path;
    alignas(4096) std::array<std::byte, 3 * 4096> memory{};
};

TEST_P(FileFaults, MemoryThatIsNotAlignedIsUsedAsWell) {
    const auto backend = try_open().value();
    const std::span bytes = std::span(memory).subspan(64, 4096);
    std::fill(bytes.begin(), bytes.end(), std::byte{0x77});
    EXPECT_EQ(ask(*backend, IoKind::Write, 8192, bytes), 0);
    const std::span into = std::span(memory).subspan(4096 + 520, 4096);
    EXPECT_EQ(ask(*backend, IoKind::Read, 8192, into), 0);
    EXPECT_TRUE(std::equal(into.begin(), into.end(), std::vector(4096, std::byte{0x77}).begin()));
}

TEST_P(FileFaults, AFileThatWasCutIsNotMadeLonger) {
    const auto backend = try_open().value();
    ASSERT_EQ(::truncate(path.c_str(), 4096), 0);
    const std::span page = std::span(memory).first(4096);
    for (const IoKind kind : {IoKind::Write, IoKind::WriteZeroes, IoKind::Discard})
        EXPECT_EQ(ask(*backend, kind, 65536, page), EIO);
    EXPECT_EQ(std::filesystem::file_size(path), 4096u);
    EXPECT_EQ(ask(*backend, IoKind::Write, 0, page), 0);
}

TEST_P(FileFaults, NothingIsCutOffAndNothingIsEmpty) {
    for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1000}, kSize + 1}) {
        make_file(size);
        const auto opened = try_open();
        ASSERT_FALSE(opened) << size;
        EXPECT_EQ(opened.error().code, EINVAL);
        EXPECT_NE(opened.error().why.find("truncate"), std::string::npos) << opened.error().why;
    }
    make_file(kSize + 512);
    EXPECT_EQ(try_open().value()->shape().size, kSize + 512);
}

TEST_P(FileFaults, OneWritesWhateverTheName) {
    const auto backend = try_open().value();
    EXPECT_EQ(try_open().error().code, EBUSY);
    const std::string link = folder + "/link";
    std::filesystem::create_hard_link(path, link);
    EXPECT_EQ(file_backend(loop, link).error().code, EBUSY);
    EXPECT_TRUE(try_open({.read_only = true})) << "readers do no harm";
}

TEST_P(FileFaults, AFlushOfAReaderTakesNoReport) {
    const auto backend = try_open({.read_only = true}).value();
    failing_syncs = 1;
    EXPECT_EQ(ask(*backend, IoKind::Flush), 0);
    EXPECT_EQ(failing_syncs, 1) << "fdatasync was called";
}

// The server's process ends in the middle of a flush or of a write with FUA; the kernel's answer is
// nobody's.
class KilledServers : public FileFaults {
protected:
    void be_killed_in(IoKind kind) {
        const pid_t child = ::fork();
        if (child == 0) {
            rdma::Loop own(runtime);
            const auto backend = file_backend(own, path, {.io_uring = GetParam()}).value();
            dies_in_sync = true;
            Asked asked(kind, 0, std::span(memory).first(4096));
            asked.fua = kind == IoKind::Write;
            backend->submit(asked);
            (void)rdma::poll_until(own, [&] { return asked.ended(); });
            ::_exit(0);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the server was not killed in its sync";
    }
    bool has_failed() {
        said.clear();
        FileOptions options;
        options.tell = [this](const std::string& sentence) { said = sentence; };
        return try_open(options).value()->writer_record()->flush_failed;
    }
    char mark() {
        std::ifstream in(path + ".feroce.flush");
        const std::string all(std::istreambuf_iterator<char>(in), {});
        return all.size() < 2 ? 0 : all[all.size() - 2];
    }
    void set_mark(char state) {
        std::fstream file(path + ".feroce.flush");
        file.seekp(-2, std::ios::end);
        file << state;
    }
    std::string said;
};

TEST_P(KilledServers, TheKernelIsAskedWhatBecameOfTheFlush) {
    for (const IoKind kind : {IoKind::Flush, IoKind::Write}) {
        system_error = 0;
        be_killed_in(kind);
        EXPECT_EQ(mark(), '1');
        const int before = asked_systems;
        EXPECT_FALSE(has_failed());
        EXPECT_EQ(asked_systems, before + 1);
        EXPECT_EQ(said, "");
        EXPECT_EQ(mark(), '0');
        EXPECT_FALSE(has_failed());
        EXPECT_EQ(asked_systems, before + 1) << "there was nothing to ask";
    }
}

class Openings : public KilledServers {
protected:
    // With another file that is open, and the first one waiting for the kernel.
    Openings() {
        const std::string killed = path;
        be_killed_in(IoKind::Flush);
        path = folder + "/other";
        make_file(kSize);
        other = try_open().value();
        path = killed;
        systems_block = is_loop = true;
        waits_by_loop = 0;
        opening.emplace(loop);
        opening->spawn(open());
        EXPECT_TRUE(rdma::poll_until(loop, [] { return asked_systems == 1; }));
        EXPECT_FALSE(opened);
    }
    ~Openings() override { systems_block = is_loop = false; }

    rdma::Task<void> open() {
        FileOptions options;
        options.io_uring = GetParam();
        opened = co_await open_file_backend(loop, path, options);
    }

    std::shared_ptr<Backend> other;
    std::optional<rdma::Result<std::shared_ptr<Backend>>> opened;
    std::optional<rdma::TaskGroup> opening;
};

TEST_P(Openings, OneThatWaitsForTheKernelStopsNobodyElse) {
    const std::span page = std::span(memory).first(4096);
    EXPECT_EQ(ask(*other, IoKind::Write, 0, page), 0);
    EXPECT_EQ(ask(*other, IoKind::Flush), 0);
    EXPECT_FALSE(opened);
    system_may_answer.release();
    ASSERT_TRUE(rdma::poll_until(loop, [&] { return opened.has_value(); }));
    ASSERT_TRUE(*opened) << opened->error().why;
    EXPECT_FALSE((**opened)->writer_record()->flush_failed);
    EXPECT_EQ(ask(***opened, IoKind::Write, 0, page), 0);
    EXPECT_EQ(waits_by_loop, 0) << "the loop itself has waited for the disk";
    EXPECT_EQ(mark(), '0');
}

TEST_P(Openings, OneThatIsGivenUpLetsGoOfItsFile) {
    opening.reset();
    systems_block = is_loop = false;
    EXPECT_EQ(try_open().error().code, EBUSY) << "a thread has it";
    system_may_answer.release();
    std::shared_ptr<Backend> again;
    const auto opens = [&] {
        auto tried = try_open();
        if (tried) again = *std::move(tried);
        return again != nullptr;
    };
    EXPECT_TRUE(rdma::poll_until(loop, opens));
    EXPECT_FALSE(opened);
}

TEST_P(Openings, ThoseOfDeadDevicesStopNoOther) {
    constexpr std::size_t kDead = 2 * CallPool::kOfOneDevice;
    const std::array<int, kDead> files{};
    std::counting_semaphore<> may_end{0};
    std::size_t ended = 0;
    const auto pool = CallPool::of(loop);
    const auto hangs = [&] {
        may_end.acquire();
        return 0;
    };
    // Nobody knows which devices they are on.
    for (const int& file : files) pool->run({.id = &file}, hangs, [&](int) { ++ended; });
    system_may_answer.release();
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return opened.has_value(); }));
    path = folder + "/third";
    make_file(kSize);
    opened.reset();
    opening->spawn(open());
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return opened.has_value(); }));
    EXPECT_TRUE(opened && *opened);
    may_end.release(kDead);
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return ended == kDead; }));
}

INSTANTIATE_TEST_SUITE_P(All, Openings, testing::Bool(),
                         [](const auto& with) { return with.param ? "uring" : "threads"; });

TEST_P(KilledServers, AServerKilledWhileItAskedLeavesAFailure) {
    try_open().value();
    set_mark('2');
    EXPECT_TRUE(has_failed());
    EXPECT_EQ(asked_systems, 0) << "what was told once is not told again";
    EXPECT_EQ(mark(), '0') << "it is in the record now";
    EXPECT_TRUE(has_failed());
    EXPECT_EQ(said, "") << "of what the record has nothing is said again";
}

TEST_P(KilledServers, AFailureStaysMarkedUntilItIsInTheRecord) {
    for (const bool kept : {false, true}) {
        auto backend = try_open().value();
        failing_syncs = 1;
        EXPECT_EQ(ask(*backend, IoKind::Flush), EIO);
        EXPECT_EQ(ask(*backend, IoKind::Flush), 0) << "Linux tells it once";
        EXPECT_EQ(mark(), '2');
        struct Kept : RecordRequest {
            int error = -1;
        } keeping;
        keeping.record = *backend->writer_record();
        keeping.record.flush_failed = kept;
        keeping.done = [](RecordRequest& request, int error) {
            static_cast<Kept&>(request).error = error;
        };
        if (kept) {
            is_loop = true;
            marks_by_loop = marks_by_threads = 0;
            backend->keep(keeping);
            EXPECT_TRUE(rdma::poll_until(loop, [&] { return keeping.error == 0; }));
            is_loop = false;
            EXPECT_EQ(mark(), '0');
            EXPECT_EQ(marks_by_loop, 0) << "to clear it may block";
            EXPECT_EQ(marks_by_threads, 1);
        }
        backend.reset();
        EXPECT_TRUE(has_failed());
        EXPECT_EQ(asked_systems, 0);
        std::filesystem::remove(path + ".feroce");
    }
}

// The write's descriptor may have been told of an earlier loss by any of these.
TEST_P(KilledServers, AWriteWithFuaThatFailedIsALossUnlessASyncSaysThatItIsNone) {
    struct Case {
        int error;
        bool sync_fails;
        int told;
        bool lost;
    };
    for (const Case& is : std::initializer_list<Case>{{EIO, false, EIO, true},
                                                      {ENODATA, false, ENODATA, true},
                                                      {EREMOTEIO, false, EREMOTEIO, true},
                                                      {ENOLINK, false, ENOLINK, true},
                                                      {ETIMEDOUT, false, ETIMEDOUT, true},
                                                      {ENOSPC, false, ENOSPC, false},
                                                      {EDQUOT, false, EDQUOT, false},
                                                      {EINVAL, false, EINVAL, false},
                                                      {ENOSPC, true, EIO, true},
                                                      {EDQUOT, true, EIO, true},
                                                      {EINTR, true, EIO, true},
                                                      {EINTR, false, 0, false}}) {
        auto backend = try_open().value();
        fua_error = is.error;
        failing_syncs = is.sync_fails ? 1 : 0;
        Asked asked(IoKind::Write, 0, std::span(memory).first(4096));
        asked.fua = true;
        backend->submit(asked);
        wait_for(asked);
        EXPECT_EQ(asked.error, is.told);
        EXPECT_EQ(asked.lost, is.lost) << is.error << is.sync_fails;
        EXPECT_EQ(mark(), is.lost ? '2' : '0') << is.error << is.sync_fails;
        backend.reset();
        EXPECT_EQ(has_failed(), is.lost) << is.error << is.sync_fails;
        std::filesystem::remove(path + ".feroce");
    }
}

TEST_P(KilledServers, AMarkOfAnotherFileMeansNothing) {
    try_open().value();
    set_mark('2');
    std::filesystem::remove(path);
    make_file(kSize);
    EXPECT_FALSE(has_failed());
    EXPECT_EQ(mark(), '0');
}

// In a process of its own, which remembers what a file system has lost as long as it lives.
TEST_P(KilledServers, WhatTheKernelLostIsLostForAllDisksOfTheFileSystem) {
    const pid_t child = ::fork();
    if (child == 0) {
        be_killed_in(IoKind::Flush);
        system_error = EIO;
        EXPECT_TRUE(has_failed());
        EXPECT_NE(said.find("could not write something"), std::string::npos) << said;
        EXPECT_EQ(mark(), '0');
        system_error = 0;  // It tells it once.
        path = folder + "/other";
        make_file(kSize);
        be_killed_in(IoKind::Flush);
        EXPECT_TRUE(has_failed());
        ::_exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

INSTANTIATE_TEST_SUITE_P(All, KilledServers, testing::Bool(),
                         [](const auto& with) { return with.param ? "uring" : "threads"; });

INSTANTIATE_TEST_SUITE_P(All, FileFaults, testing::Bool(),
                         [](const auto& with) { return with.param ? "uring" : "threads"; });

class Threads : public FileFaults {};

TEST_P(Threads, ASlowSyncStopsNobodyElse) {
    const auto backend = try_open({.direct = false}).value();
    syncs_block = true;
    Asked first(IoKind::Flush, 0, {});
    Asked second(IoKind::Flush, 0, {});
    backend->submit(first);
    EXPECT_EQ(ask(*backend, IoKind::Write, 0, std::span(memory).first(4096)), 0)
        << "the loop and the other requests go on";
    backend->submit(second);
    EXPECT_FALSE(first.ended());
    syncs_block = false;
    sync_may_end.release();
    wait_for(first);
    wait_for(second);
    EXPECT_EQ(first.error + second.error, 0);
}

// Two disks whose device answers no more, and one on another.
TEST_P(Threads, ADeadDeviceStopsNoOther) {
    struct stat here {};
    struct stat there {};
    ASSERT_EQ(::stat(path.c_str(), &here), 0);
    if (::stat("/dev/shm", &there) != 0 || here.st_dev == there.st_dev)
        GTEST_SKIP() << "/var/tmp and /dev/shm are not two file systems";
    const auto first = try_open().value();
    path = folder + "/second";
    make_file(kSize);
    const auto second = try_open().value();
    const std::string healthy = "/dev/shm/feroce-faults-" + std::to_string(::getpid());
    path = healthy;
    make_file(kSize);
    const auto other = try_open().value();
    constexpr int kMost = CallPool::kOfOneDevice;
    dead_device = here.st_dev;
    stuck_writes = 0;
    std::deque<Asked> dead;
    for (int i = 0; i < 64; ++i) {
        dead.emplace_back(IoKind::Write, 0, std::span(memory).first(4096)).fua = true;
        (i % 2 == 0 ? first : second)->submit(dead.back());
    }
    EXPECT_TRUE(rdma::poll_until(loop, [] { return stuck_writes >= kMost; }));
    EXPECT_EQ(ask(*other, IoKind::Write, 0, std::span(memory).last(4096)), 0);
    EXPECT_EQ(ask(*other, IoKind::Flush), 0);
    EXPECT_EQ(stuck_writes, kMost);
    dead_device = 0;
    dead_may_end.release(stuck_writes);
    for (const Asked& asked : dead) {
        wait_for(asked);
        EXPECT_EQ(asked.error, 0);
    }
    for (const char* const what : {"", ".feroce", ".feroce.flush"})
        std::filesystem::remove(healthy + what);
}

TEST_P(Threads, AFailedSyncIsToldToAllWhoWaitedForIt) {
    const auto backend = try_open({.direct = false}).value();
    syncs_block = true;
    failing_syncs = 2;
    Asked first(IoKind::Flush, 0, {});
    Asked second(IoKind::Flush, 0, {});
    Asked third(IoKind::Write, 0, std::span(memory).first(4096));
    third.preflush = true;
    for (Asked* const asked : {&first, &second, &third}) backend->submit(*asked);
    syncs_block = false;
    sync_may_end.release();
    for (Asked* const asked : {&first, &second, &third}) {
        wait_for(*asked);
        EXPECT_EQ(asked->error, EIO);
    }
    EXPECT_TRUE(third.lost);
}

INSTANTIATE_TEST_SUITE_P(All, Threads, testing::Values(false));

class Rings : public FileFaults {};

TEST_P(Rings, WhatTheKernelDoesNotTakeNowItGetsAgain) {
    const auto backend = try_open().value();
    const std::span page = std::span(memory).first(4096);
    for (const int code : {-EAGAIN, -EBUSY, -EINTR}) {
        refused_submits = 3;
        refusal = code;
        EXPECT_EQ(ask(*backend, IoKind::Write, 0, page), 0);
    }
    // More than the ring has room for, and it takes none of them at first.
    std::deque<Asked> many;
    refused_submits = 3;
    for (int i = 0; i < 3000; ++i) many.emplace_back(IoKind::Read, 0, page);
    for (Asked& asked : many) backend->submit(asked);
    for (Asked& asked : many) wait_for(asked);
    for (Asked& asked : many) ASSERT_EQ(asked.error, 0);
}

TEST_P(Rings, ThreadsGoOnWhereTheKernelTakesNothingAnyMore) {
    const auto backend = try_open().value();
    refused_submits = 1;
    refusal = -EBADF;
    const std::span page = std::span(memory).first(4096);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(*backend, IoKind::Write, 0, page), 0);
}

INSTANTIATE_TEST_SUITE_P(All, Rings, testing::Values(true));

}  // namespace
}  // namespace feroce::block::file_fault_test
