// Disks allocate nothing per request: once warm, reads, writes, flushes and zeroes by a client,
// from the caller to the server's back end and back, make not one call of operator new.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "counting_new.hpp"
#include "feroce/block/client.hpp"
#include "feroce/block/server.hpp"
#include "feroce/task_group.hpp"

namespace feroce::bench {
namespace {

constexpr std::size_t kBlock = 4096;
constexpr std::uint64_t kDiskSize = 4 << 20;
constexpr unsigned kDepth = 16;

rdma::Task<void> use(block::Disk disk, std::span<std::byte> data, unsigned number, unsigned count) {
    const std::uint64_t offset = number * kBlock;
    for (unsigned i = 0; i < count; ++i) {
        // A real disk takes its time for what must be durable.
        const bool durable = i % 64 == 0;
        (co_await disk.write(offset, data, {.fua = durable})).value();
        (co_await disk.read(offset, data)).value();
        if (durable) (co_await disk.flush()).value();
        if (i % 8 == 1) (co_await disk.zero(offset, kBlock)).value();
        if (i % 8 == 2) (co_await disk.discard(offset, kBlock)).value();
    }
}

// Several at a time, as many rounds as asked for.
void use_all(rdma::Loop& loop, const block::Disk& disk, std::span<std::byte> data, unsigned count) {
    rdma::TaskGroup group(loop);
    for (unsigned i = 0; i < kDepth; ++i)
        group.spawn(use(disk, data.subspan(i * kBlock, kBlock), i, count));
    loop.run(group.join()).value();
}

class DiskAllocations : public testing::Test {
protected:
    DiskAllocations() {
        char path[] = "/var/tmp/feroce-XXXXXX";
        const int fd = ::mkstemp(path);
        path_ = path;
        EXPECT_EQ(::ftruncate(fd, kDiskSize), 0);
        ::close(fd);
    }
    ~DiskAllocations() override { ::unlink(path_.c_str()); }

    void count(std::shared_ptr<block::Backend> backend) {
        rtrs::ServerOptions options{.address = "127.0.0.1", .port = 0, .queue_depth = 32};
        block::DiskServer server =
            block::DiskServer::open(loop_, options, {{"disk", std::move(backend)}}).value();
        block::DiskClient client(loop_);
        const block::Disk disk =
            loop_
                .run(client.open("count", {{"127.0.0.1"}}, "disk", block::AccessMode::ReadWrite,
                                 {.port = server.port()}))
                .value();
        rtrs::SessionBuffer registered = disk.session().allocate(kDepth * kBlock).value();
        std::vector<std::byte> plain(kDepth * kBlock);
        const auto round = [&] {
            use_all(loop_, disk, registered.bytes(), 25);
            use_all(loop_, disk, plain, 25);
        };
        EXPECT_EQ(allocations_once_warm(round), 0u);
        loop_.run(disk.close()).value();
        loop_.run(server.stop()).value();
    }

    std::string path_;
    rdma::RealRuntime runtime_;
    rdma::Loop loop_{runtime_};
};

TEST_F(DiskAllocations, NoneInMemory) {
    count(block::memory_backend(kDiskSize, 1).value());
}

TEST_F(DiskAllocations, NoneInAFile) {
    count(block::file_backend(loop_, path_, {}).value());
}

}  // namespace
}  // namespace feroce::bench
