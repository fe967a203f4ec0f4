// Disks on real sockets: client and server in one process, on loopback.
#include <sys/stat.h>

#include <cerrno>
#include <stop_token>

#include "block/test_server.hpp"
#include "feroce/task_group.hpp"
#include "rdma/test_until.hpp"

namespace feroce::block {
namespace {

using namespace std::chrono_literals;

class Disks : public ServedDisks {
protected:
    Bytes read(const Disk& disk, std::uint64_t offset, std::size_t size) {
        Bytes into(size, std::byte{0xee});
        expect_done(disk.read(offset, into));
        return into;
    }
};

TEST_F(Disks, OperationsAreAwaitedOrWaitedFor) {
    serve(all_kinds());
    rtrs::SessionOptions options;
    options.port = server->port();
    const auto paths = std::vector<rtrs::PathAddress>{{"127.0.0.1"}};
    const auto opened =
        client.open("waits", paths, "memory", AccessMode::ReadWrite, options).within(10s).wait();
    ASSERT_TRUE(opened) << opened.error().why;
    const Disk& disk = *opened;
    const Bytes data = noise(4096, 5);
    Bytes back(4096);
    ASSERT_TRUE(disk.write(0, data).wait());
    ASSERT_TRUE(disk.read(0, back).within(10s).wait());
    EXPECT_EQ(back, data);
    std::stop_source stop;
    stop.request_stop();
    EXPECT_EQ(code_of(disk.read(0, back).with(stop.get_token())), ECANCELED);
    EXPECT_EQ(code_of(disk.read(0, back).within(0s)), ETIMEDOUT);
    EXPECT_TRUE(disk.flush().shielded().wait());
    EXPECT_TRUE(disk.close().wait());
    EXPECT_TRUE(disk.session().close().within(10s).wait());
}

TEST_F(Disks, EveryBackEndKeepsWhatIsWritten) {
    serve(all_kinds());
    std::vector<Disk> disks;
    for (const char* name : {"memory", "file"}) {
        SCOPED_TRACE(name);
        const Disk disk = open(name);
        disks.push_back(disk);
        EXPECT_EQ(disk.info().shape.size, kTestDiskSize);
        EXPECT_EQ(disk.info().shape.logical_block, 512u);
        // One sector, one request, and several requests side by side.
        for (const std::size_t size : {512, 65536, 1 << 20}) {
            const Bytes data = noise(size, static_cast<unsigned>(size));
            expect_done(disk.write(size, data));
            EXPECT_EQ(read(disk, size, size), data);
        }
        expect_done(disk.write(0, noise(4096, 1), {.fua = true}));
        expect_done(disk.write(4096, noise(4096, 2), {.fua = true, .preflush = true}));
        expect_done(disk.flush());
        expect_done(disk.discard(0, 4096));
        EXPECT_EQ(read(disk, 0, 4096), Bytes(4096));
        EXPECT_EQ(read(disk, 4096, 4096), noise(4096, 2));
        expect_done(disk.zero(4096, 4096));
        expect_done(disk.zero(1 << 20, 1 << 20, {.unmap = false, .fua = true}));
        EXPECT_EQ(read(disk, 4096, 4096), Bytes(4096));
        EXPECT_EQ(read(disk, 1 << 20, 1 << 20), Bytes(1 << 20));
    }
    const Disk nothing = open("null");
    expect_done(nothing.write(0, noise(4096, 1)));
    EXPECT_EQ(read(nothing, 0, 4096), Bytes(4096));
    const auto statistics = server->statistics();
    EXPECT_EQ(statistics.open, 3u);
    EXPECT_EQ(statistics.refused, 0u);
    EXPECT_EQ(statistics.sessions.sessions, 1u) << "disks of one session share it";
    EXPECT_GE(statistics.flushes, 1u);
    EXPECT_EQ(statistics.discards, 2u);
    EXPECT_EQ(statistics.zeroes, 4u);
}

TEST_F(Disks, AsTheKernelSpeaks) {
    serve(all_kinds());
    rtrs::SessionOptions plain;
    plain.extension = false;
    auto disk = try_open("file", AccessMode::ReadWrite, "kernel", plain);
    ASSERT_TRUE(disk) << disk.error().why;
    const Bytes data = noise(300'000 / 512 * 512, 3);
    expect_done(disk->write(512, data, {.preflush = true}));
    EXPECT_EQ(read(*disk, 512, data.size()), data);
    expect_done(disk->flush());
    EXPECT_EQ(try_open("memory", AccessMode::ReadWrite, "kernel", plain).error().code, EBUSY);
}

TEST_F(Disks, WhatCannotBeIsRefusedHere) {
    serve(all_kinds());
    const Disk disk = open("memory");
    Bytes data(512);
    EXPECT_EQ(code_of(disk.read(kTestDiskSize, data)), ENOSPC);
    EXPECT_EQ(code_of(disk.read(UINT64_MAX - 511, data)), ENOSPC);
    EXPECT_EQ(code_of(disk.write(1, data)), EINVAL);
    EXPECT_EQ(code_of(disk.discard(0, 100)), EINVAL);
    expect_done(disk.close());
    EXPECT_EQ(code_of(disk.read(0, data)), EBADF);
    expect_done(disk.close());
    EXPECT_EQ(try_open("").error().code, EINVAL);
    EXPECT_EQ(server->statistics().refused, 0u);
}

TEST_F(Disks, WhoMayOpenWhat) {
    auto exports = all_kinds();
    exports[0].sessions = {"db", "web-*"};
    exports[1].addresses = {"10.0.0.0/8", "192.168.1.7"};
    exports[2].addresses = {"127.0.0.0/24", "::1"};
    exports[2].read_only = true;
    serve(std::move(exports));
    using enum AccessMode;
    EXPECT_EQ(try_open("memory", ReadWrite, "test").error().code, EACCES);
    EXPECT_EQ(try_open("memory", ReadOnly, "web").error().code, EACCES);
    open("memory", ReadOnly, "web-1");
    open("memory", ReadOnly, "db");
    EXPECT_EQ(try_open("file", ReadOnly, "db").error().code, EACCES);
    open("null", ReadOnly, "db");
    EXPECT_EQ(try_open("null", ReadWrite, "db2").error().code, EROFS);
    EXPECT_EQ(try_open("none", ReadOnly, "db").error().code, ENOENT);
    EXPECT_EQ(try_open("/memory", ReadOnly, "db").error().code, ENOENT);
    EXPECT_EQ(try_open("../memory", ReadOnly, "db").error().code, EINVAL);
    const auto refused = try_open("none", ReadOnly, "db");
    EXPECT_EQ(refused.error().why,
              "the server refused the disk none: it exports none of this name");
}

TEST_F(Disks, EverySessionMayHaveADiskOfItsOwnByTheSameName) {
    auto exports = all_kinds();
    exports[0].name = "root";
    exports.push_back({.name = "vm1/root", .backend = null_backend(512), .sessions = {"vm1"}});
    serve(std::move(exports));
    EXPECT_EQ(open("root", AccessMode::ReadOnly, "vm1").info().shape.size, 512u);
    EXPECT_EQ(open("root", AccessMode::ReadOnly, "vm2").info().shape.size, kTestDiskSize);
    EXPECT_EQ(try_open("vm1/root", AccessMode::ReadOnly, "vm3").error().code, EACCES);
}

TEST_F(Disks, OneWriterOrTwoWhoMigrate) {
    serve(all_kinds());
    using enum AccessMode;
    std::optional<Disk> first = open("memory", ReadWrite, "first");
    EXPECT_EQ(try_open("memory", ReadWrite, "second").error().code, EPERM);
    const Disk reader = open("memory", ReadOnly, "reader");
    Bytes data(512);
    EXPECT_EQ(code_of(reader.write(0, data)), EROFS);
    EXPECT_EQ(code_of(reader.discard(0, 512)), EROFS);
    std::optional<Disk> moving = open("memory", Migration, "moving");
    EXPECT_EQ(try_open("memory", Migration, "third").error().code, EPERM);
    expect_done(first->close());
    expect_done(moving->write(0, data));
    expect_done(moving->close());
    open("memory", ReadWrite, "second");
}

TEST_F(Disks, AHandleThatIsDroppedClosesItsDisk) {
    serve(all_kinds());
    const Disk other = open("null");
    (void)open("memory");
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return server->statistics().open == 1; }));
    open("memory", AccessMode::ReadWrite, "another");
}

TEST_F(Disks, GrowWhileTheyAreOpen) {
    serve(all_kinds());
    const Disk disk = open("file");
    ASSERT_EQ(::truncate(path.c_str(), 2 * kTestDiskSize), 0);
    EXPECT_EQ(disk.info().shape.size, kTestDiskSize);
    expect_done(disk.refresh());
    EXPECT_EQ(disk.info().shape.size, 2 * kTestDiskSize);
    const Bytes data = noise(512, 5);
    expect_done(disk.write(2 * kTestDiskSize - 512, data));
    EXPECT_EQ(read(disk, 2 * kTestDiskSize - 512, 512), data);
}

rdma::Task<void> write_all(Disk disk, unsigned part, int& done) {
    for (unsigned i = 0; i < 20; ++i) {
        const std::uint64_t at = (part * 20 + i) * 4096;
        done += (co_await disk.write(at, noise(4096, part * 20 + i))).has_value();
    }
    done += (co_await disk.flush()).has_value();
}

TEST_F(Disks, AServerThatComesBackIsGoneOnWith) {
    serve(all_kinds());
    const std::uint16_t port = server->port();
    const Disk disk = open("file");
    const Disk other = open("null");
    expect_done(disk.write(0, noise(4096, 77)));
    int done = 0;
    rdma::TaskGroup group(loop);
    for (unsigned i = 0; i < 8; ++i) group.spawn(write_all(disk, i, done));
    for (int i = 0; i < 20; ++i) loop.poll();
    stop();
    serve(all_kinds(), port);
    ASSERT_TRUE(loop.run(group.join()));
    EXPECT_EQ(done, 8 * 21) << "the file is there still, so nothing was lost";
    for (unsigned i = 0; i < 160; ++i) {
        ASSERT_EQ(read(disk, i * 4096, 4096), noise(4096, i)) << i;
    }
    expect_done(other.write(0, noise(512, 1)));
    EXPECT_EQ(server->statistics().open, 2u);
}

TEST_F(Disks, AServerThatForgotEverythingIsNot) {
    serve({{.name = "memory", .backend = memory_backend(kTestDiskSize, 1).value()}});
    const std::uint16_t port = server->port();
    const Disk disk = open("memory");
    expect_done(disk.write(0, noise(512, 1)));
    stop();
    serve({{.name = "memory", .backend = memory_backend(kTestDiskSize, 2).value()}}, port);
    Bytes data(512);
    EXPECT_EQ(code_of(disk.read(0, data)), ESTALE);
    EXPECT_EQ(code_of(disk.flush()), ESTALE);
}

// A disk that is full for writes and broken for everything else.
class BrokenBackend final : public Backend {
public:
    Shape shape() override {
        Shape shape;
        shape.size = kTestDiskSize;
        shape.volatile_cache = true;
        return shape;
    }
    void submit(BackendRequest& request) override {
        request.done(request, request.kind == IoKind::Write ? ENOSPC : EIO);
    }
};

TEST_F(Disks, ErrorsOfABackEndComeBackAsTheyAre) {
    serve({{.name = "broken", .backend = std::make_shared<BrokenBackend>()}});
    const Disk disk = open("broken");
    Bytes data(4096);
    EXPECT_EQ(code_of(disk.write(0, data)), ENOSPC);
    EXPECT_EQ(code_of(disk.write(0, data, {.fua = true})), ENOSPC);
    EXPECT_EQ(code_of(disk.write(0, Bytes(1 << 20))), ENOSPC) << "in pieces";
    EXPECT_EQ(code_of(disk.read(0, data)), EIO);
    EXPECT_EQ(code_of(disk.flush()), EIO);
    EXPECT_EQ(code_of(disk.discard(0, 4096)), EOPNOTSUPP) << "it does not offer that";
    EXPECT_EQ(server->statistics().refused, 0u);
    EXPECT_GE(server->statistics().failed, 5u);
    EXPECT_EQ(server->statistics().in_flight, 0u);
}

TEST_F(Disks, WithdrawnWhileOpen) {
    const auto memory = memory_backend(kTestDiskSize, 1).value();
    serve({{.name = "memory", .backend = memory}});
    const Disk disk = open("memory");
    Bytes data(512);
    expect_done(disk.read(0, data));
    expect_done(server->withdraw("memory"));
    EXPECT_EQ(code_of(server->withdraw("memory")), ENOENT);
    EXPECT_EQ(code_of(disk.read(0, data)), ENOENT);
    ASSERT_TRUE(server->add({.name = "memory", .backend = memory}));
    EXPECT_EQ(server->add({.name = "memory", .backend = null_backend(512)}).error().code, EEXIST);
    EXPECT_EQ(server->add({.name = "x", .backend = null_backend(512), .addresses = {"10/8"}})
                  .error()
                  .code,
              EINVAL);
    expect_done(disk.read(0, data));
}

TEST_F(Disks, ASessionThatEndsGivesItsDisksBack) {
    serve(all_kinds());
    rtrs::SessionOptions plain;
    plain.extension = false;  // Such a session ends with its last path.
    std::optional<rdma::Result<Disk>> disk = try_open("memory", AccessMode::ReadWrite, "a", plain);
    ASSERT_TRUE(*disk);
    EXPECT_EQ(server->statistics().open, 1u);
    disk.reset();
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return server->statistics().open == 0; }));
    open("memory", AccessMode::ReadWrite, "b");
}

}  // namespace
}  // namespace feroce::block
