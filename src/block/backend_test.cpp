// Every back end does the same, as seen by what is read back; files moreover as the kernel sees it.
#include "feroce/block/backend.hpp"
#include "rdma/test_until.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "block/test_server.hpp"

namespace feroce::block {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSize = 1 << 20;

struct Asked : BackendRequest {
    bool ended = false;
    int error = 0;
};

class Backends : public testing::TestWithParam<const char*> {
protected:
    Backends() {
        char pattern[] = "/var/tmp/feroce-backend-XXXXXX";
        folder = ::mkdtemp(pattern);
        path = folder + "/disk";
        const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
        EXPECT_EQ(::ftruncate(fd, kSize), 0);
        ::close(fd);
        const std::string kind = GetParam();
        if (kind == "memory") backend = memory_backend(kSize, 1).value();
        if (kind == "uring") backend = file({});
        if (kind == "threads") backend = file({.direct = false, .io_uring = false});
    }
    ~Backends() override { std::filesystem::remove_all(folder); }

    std::shared_ptr<Backend> file(const FileOptions& options) {
        auto opened = file_backend(loop, path, options);
        EXPECT_TRUE(opened) << opened.error().why;
        return *opened;
    }
    int ask(IoKind kind, std::uint64_t offset, std::uint64_t length, std::span<std::byte> data = {},
            bool fua = false, bool no_unmap = false) {
        Asked asked;
        asked.kind = kind;
        asked.offset = offset;
        asked.length = length;
        asked.data = data;
        asked.fua = fua;
        asked.preflush = fua;
        asked.no_unmap = no_unmap;
        asked.done = [](BackendRequest& request, int error) {
            static_cast<Asked&>(request).ended = true;
            static_cast<Asked&>(request).error = error;
        };
        backend->submit(asked);
        const bool ended = rdma::poll_until(loop, [&] { return asked.ended; });
        if (!ended) std::abort();  // The kernel would write a frame that is gone.
        return asked.error;
    }
    std::span<std::byte> aligned(std::size_t size) {
        memory.reset(
            static_cast<std::byte*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096)));
        return {memory.get(), size};
    }
    Bytes read(std::uint64_t offset, std::size_t size) {
        const auto into = aligned(size);
        EXPECT_EQ(ask(IoKind::Read, offset, size, into), 0);
        return {into.begin(), into.end()};
    }
    int write(std::uint64_t offset, std::size_t size, int value, bool fua = false) {
        const auto from = aligned(size);
        std::fill(from.begin(), from.end(), static_cast<std::byte>(value));
        return ask(IoKind::Write, offset, size, from, fua);
    }

    struct Free {
        void operator()(std::byte* at) const { std::free(at); }
    };
    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    std::string folder;
    std::string path;
    std::unique_ptr<std::byte, Free> memory;
    std::shared_ptr<Backend> backend;
};

TEST_P(Backends, ReadsWhatWasWritten) {
    EXPECT_EQ(backend->shape().size, kSize);
    EXPECT_EQ(read(0, 4096), Bytes(4096));
    ASSERT_EQ(write(8192, 65536, 0x5a), 0);
    ASSERT_EQ(write(16384, 4096, 0xa5, true), 0);
    EXPECT_EQ(ask(IoKind::Flush, 0, 0), 0);
    EXPECT_EQ(read(8192, 8192), Bytes(8192, std::byte{0x5a}));
    EXPECT_EQ(read(16384, 4096), Bytes(4096, std::byte{0xa5}));
    EXPECT_EQ(read(20480, 4096), Bytes(4096, std::byte{0x5a}));
}

TEST_P(Backends, DiscardedAndZeroedReadsAsZero) {
    ASSERT_EQ(write(0, kSize, 1), 0);
    const Bytes ones(4096, std::byte{1});
    EXPECT_NE(backend->shape().discard_granularity, 0u);
    EXPECT_EQ(ask(IoKind::Discard, 0, 65536), 0);
    EXPECT_EQ(read(0, 65536), Bytes(65536));
    EXPECT_EQ(read(65536, 4096), ones);
    EXPECT_EQ(ask(IoKind::WriteZeroes, 131072, 8192, {}, true), 0);
    EXPECT_EQ(ask(IoKind::WriteZeroes, 262144, 200'704, {}, false, true), 0);
    EXPECT_EQ(read(131072, 8192), Bytes(8192));
    EXPECT_EQ(read(139264, 4096), ones);
    EXPECT_EQ(read(262144, 200'704), Bytes(200'704));
    EXPECT_EQ(read(262144 + 200'704, 4096), ones);
    EXPECT_EQ(ask(IoKind::SecureErase, 0, 4096), EOPNOTSUPP);
    EXPECT_EQ(read(65536, 4096), ones);
}

INSTANTIATE_TEST_SUITE_P(All, Backends, testing::Values("memory", "uring", "threads"),
                         [](const auto& which) { return std::string(which.param); });

class Files : public Backends {};

TEST_P(Files, SpaceIsGivenBackOrKept) {
    const auto blocks = [&] {
        struct stat status {};
        EXPECT_EQ(::stat(path.c_str(), &status), 0);
        return status.st_blocks;
    };
    ASSERT_EQ(write(0, kSize, 1, true), 0);
    const auto full = blocks();
    EXPECT_EQ(ask(IoKind::WriteZeroes, 0, kSize / 2, {}, true, true), 0);
    EXPECT_EQ(blocks(), full) << "NOUNMAP";
    EXPECT_EQ(ask(IoKind::Discard, 0, kSize / 2, {}, true), 0);
    EXPECT_LT(blocks(), full);
}

TEST_P(Files, GrowAndShrinkWhileOpen) {
    ASSERT_EQ(::truncate(path.c_str(), 2 * kSize), 0);
    EXPECT_EQ(backend->shape().size, 2 * kSize);
    EXPECT_EQ(write(kSize, 4096, 3), 0);
    ASSERT_EQ(::truncate(path.c_str(), kSize), 0);
    EXPECT_EQ(ask(IoKind::Read, kSize, 4096, aligned(4096)), EIO) << "the file was cut";
}

TEST_P(Files, WhatCannotBeOpenedSaysWhy) {
    auto missing = file_backend(loop, folder + "/none", {});
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, ENOENT);
    EXPECT_NE(missing.error().why.find("none cannot be opened"), std::string::npos);
    EXPECT_EQ(file_backend(loop, folder, {.read_only = true}).error().code, ENOTBLK);
    EXPECT_EQ(file_backend(loop, "/dev/zero", {}).error().code, ENOTBLK);
    EXPECT_EQ(memory_backend(std::uint64_t{1} << 62, 1).error().code, ENOMEM);
    backend = file({.read_only = true});
    EXPECT_EQ(write(0, 4096, 1), EBADF);
}

INSTANTIATE_TEST_SUITE_P(All, Files, testing::Values("uring", "threads"),
                         [](const auto& which) { return std::string(which.param); });

}  // namespace
}  // namespace feroce::block
