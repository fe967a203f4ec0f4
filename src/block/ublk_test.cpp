// What the kernel's ublk asks of a disk, without the kernel: requests as it writes them, on a disk
// of a real server. With the kernel: tests/interop/ublk.py.
#include <cerrno>

#include "block/patient_open.hpp"
#include "block/test_server.hpp"
#include "block/ublk/requests.hpp"

namespace feroce::block {
namespace {

using ublk::Params;
using ublk::Request;

class Ublk : public ServedDisks {
protected:
    int perform(const Disk& disk, std::uint32_t what, std::uint64_t offset, std::size_t length) {
        const Request request{what, static_cast<std::uint32_t>(length / kSectorSize),
                              offset / kSectorSize, 0};
        return loop.run(ublk::perform(disk, request, data));
    }
    Bytes data = Bytes(65536);
};

TEST_F(Ublk, RequestsDoWhatTheyAsk) {
    serve(all_kinds());
    const Disk disk = open("file");
    const Bytes written = noise(65536, 3);
    data = written;
    EXPECT_EQ(perform(disk, ublk::kWrite, 4096, 65536), 65536);
    EXPECT_EQ(perform(disk, ublk::kWrite | ublk::kFua, 4096, 512), 512);
    EXPECT_EQ(perform(disk, ublk::kFlush, 0, 0), 0);
    data.assign(65536, std::byte{1});
    EXPECT_EQ(perform(disk, ublk::kRead, 4096, 65536), 65536);
    EXPECT_EQ(data, written);
    EXPECT_EQ(perform(disk, ublk::kZeroes | ublk::kKeepSpace, 4096, 512), 0);
    EXPECT_EQ(perform(disk, ublk::kZeroes | ublk::kFua, 4608, 512), 0);
    EXPECT_EQ(perform(disk, ublk::kDiscard, 8192, 4096), 0);
    EXPECT_EQ(perform(disk, ublk::kDiscard | ublk::kFua, 12288, 4096), 0);
    EXPECT_EQ(perform(disk, ublk::kRead, 4096, 65536), 65536);
    EXPECT_EQ(Bytes(data.begin(), data.begin() + 1024), Bytes(1024));
    EXPECT_EQ(Bytes(data.begin() + 1024, data.begin() + 4096),
              Bytes(written.begin() + 1024, written.begin() + 4096));
    EXPECT_EQ(Bytes(data.begin() + 4096, data.begin() + 12288), Bytes(8192));
    EXPECT_EQ(Bytes(data.begin() + 12288, data.end()),
              Bytes(written.begin() + 12288, written.end()));
}

TEST_F(Ublk, OnlyTheBytesOfARequestAreTouched) {
    serve(all_kinds());
    const Disk disk = open("memory");
    data.assign(65536, std::byte{7});
    EXPECT_EQ(perform(disk, ublk::kRead, 0, 512), 512);
    EXPECT_EQ(Bytes(data.begin(), data.begin() + 512), Bytes(512));
    EXPECT_EQ(Bytes(data.begin() + 512, data.end()), Bytes(65024, std::byte{7}));
}

TEST_F(Ublk, RefusalsAreErrnos) {
    serve(all_kinds());
    const Disk disk = open("memory");
    EXPECT_EQ(perform(disk, 4, 0, 512), -EOPNOTSUPP);           // Write same.
    EXPECT_EQ(perform(disk, ublk::kRead, 0, 131072), -EINVAL);  // More than its buffer.
    EXPECT_LT(perform(disk, ublk::kRead, kTestDiskSize, 512), 0);
    ASSERT_TRUE(loop.run(disk.close()));
    EXPECT_LT(perform(disk, ublk::kWrite, 0, 512), 0);
    EXPECT_LT(perform(disk, ublk::kFlush, 0, 0), 0);
}

TEST_F(Ublk, TheKernelLearnsWhatTheDiskIs) {
    DiskInfo info;
    info.shape = {.size = 1 << 20, .logical_block = 4096, .physical_block = 512};
    info.shape.rotational = true;
    info.read_only = true;
    Params params = ublk::params_of(info, 131072);
    EXPECT_EQ(params.sectors, 2048u);
    EXPECT_EQ(params.logical_shift, 12);
    EXPECT_EQ(params.physical_shift, 12);  // Never below the logical one.
    EXPECT_EQ(params.request_sectors, 256u);
    EXPECT_EQ(params.attributes,
              ublk::kReadOnly | ublk::kRotational | ublk::kVolatileCache | ublk::kFuaWorks);
    EXPECT_EQ(params.parts, ublk::kBasicPart);

    info.max_discard = std::uint64_t{1} << 40;
    info.max_zeroes = 8192;
    info.shape.discard_granularity = 65536;
    params = ublk::params_of(info, 131072);
    EXPECT_EQ(params.parts, ublk::kBasicPart | ublk::kDiscardPart);
    EXPECT_EQ(params.discard_granularity, 65536u);
    EXPECT_EQ(params.discard_sectors, 1u << 21);
    EXPECT_EQ(params.discard_segments, 1);  // The driver takes no other number.
    EXPECT_EQ(params.zeroes_sectors, 16u);
}

TEST_F(Ublk, AServerThatBeginsToListenIsFound) {
    serve(all_kinds());
    int refused = 0;
    const std::vector<rtrs::PathAddress> here{{"127.0.0.1"}};
    rtrs::SessionOptions options;
    options.port = server->port();
    const auto open = [&]() -> rdma::Task<rdma::Result<Disk>> {
        if (refused++ < 2) co_return rdma::Error{ECONNREFUSED, "not yet"};
        co_return co_await client.open("later", here, "memory", AccessMode::ReadWrite, options);
    };
    const auto opened = loop.run(open_patiently(loop, open));
    ASSERT_TRUE(opened) << opened.error().why;
    EXPECT_EQ(refused, 3);
    const auto other = [&]() -> rdma::Task<rdma::Result<Disk>> {
        ++refused;
        co_return rdma::Error{EACCES, "never"};
    };
    const auto never = loop.run(open_patiently(loop, other));
    EXPECT_EQ(never.error().code, EACCES);
    EXPECT_EQ(refused, 4);
}

}  // namespace
}  // namespace feroce::block
