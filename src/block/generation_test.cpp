// Which session may write a disk, and what a flush still promises, over restarts, losses and second
// clients.
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "block/test_stores.hpp"
#include "feroce/task_group.hpp"
#include "rdma/test_until.hpp"

namespace feroce::block {
namespace {

using namespace std::chrono_literals;

rdma::Task<void> write_late(Disk disk, std::span<const std::byte> page, int& code) {
    const auto done = co_await disk.write(0, page);
    code = done ? 0 : done.error().code;
}

TEST_F(Generations, AWriteOfAnOlderOneNeverLands) {
    serve(exports());
    const Disk first = open("data", AccessMode::ReadWrite, "first");
    ASSERT_EQ(write(first, 'a'), 0);
    const std::uint16_t port = server->port();
    stop();
    ASSERT_TRUE(first.session().disconnect_path(0));
    const Bytes late(4096, std::byte{'A'});
    int code = -1;
    rdma::TaskGroup group(loop);
    group.spawn(write_late(first, late, code));
    serve(exports(), port);
    const Disk second = open_by(other, "second").value();
    ASSERT_EQ(write(second, 'B', {.fua = true}), 0);
    expect_done(second.close());
    ASSERT_TRUE(first.session().reconnect_path(0));
    ASSERT_TRUE(loop.run(group.join()));
    EXPECT_EQ(code, ESTALE);
    EXPECT_EQ(content(), 'B');
    EXPECT_EQ(write(first, 'A'), ESTALE) << "it stays so";
    EXPECT_EQ(code_of(first.flush()), ESTALE);
    EXPECT_EQ(code_of(first.read(0, page)), ESTALE);
    EXPECT_EQ(content(), 'B');
    const Disk again = open("data", AccessMode::ReadWrite, "first");
    EXPECT_EQ(write(again, 'C'), 0);
    EXPECT_EQ(content(), 'C');
}

TEST_F(Generations, AWriterWhoComesBackToAFreeDiskGoesOn) {
    serve(exports());
    const Disk disk = open("data");
    ASSERT_EQ(write(disk, 'a'), 0);
    const std::uint64_t generation = store.record.generation;
    EXPECT_GT(generation, 0u);
    restart();
    EXPECT_EQ(write(disk, 'b'), 0);
    EXPECT_EQ(store.record.generation, generation);
    expect_done(disk.flush());
}

TEST_F(Generations, AReaderIsToldThatTheContentIsAnother) {
    serve(exports());
    const Disk reader = open("data", AccessMode::ReadOnly);
    page.resize(4096);
    expect_done(reader.read(0, page));
    restart();
    expect_done(reader.read(0, page));
    store.record = {.store = 8};
    restart();
    EXPECT_EQ(code_of(reader.read(0, page)), ESTALE);
}

TEST_F(Generations, AFileKeepsItsRecordBesideIt) {
    const auto files = [&] {
        return std::vector<Export>{{.name = "data", .backend = file_backend(loop, path).value()}};
    };
    serve(files());
    const std::uint16_t port = server->port();
    const Disk first = open("data", AccessMode::ReadWrite, "first");
    ASSERT_EQ(write(first, 'a'), 0);
    stop();
    EXPECT_TRUE(std::filesystem::exists(path + ".feroce"));
    ASSERT_TRUE(first.session().disconnect_path(0));
    serve(files(), port);
    const Disk second = open_by(other, "second").value();
    ASSERT_EQ(write(second, 'B', {.fua = true}), 0);
    expect_done(second.close());
    stop();
    serve(files(), port);
    ASSERT_TRUE(first.session().reconnect_path(0));
    EXPECT_EQ(write(first, 'A'), ESTALE);
    // Another file of that name is another disk.
    const Disk third = open_by(other, "third").value();
    stop();
    std::filesystem::remove(path);
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    ASSERT_EQ(::ftruncate(fd, kTestDiskSize), 0);
    ::close(fd);
    serve(files(), port);
    EXPECT_EQ(code_of(third.read(0, page)), ESTALE);
    EXPECT_EQ(write(third, 'D'), ESTALE);
}

TEST_F(Generations, FlushFuaAndPreflushAgreeOnALoss) {
    serve(exports());
    for (const WriteOptions options : {WriteOptions{.preflush = true}, WriteOptions{.fua = true},
                                       WriteOptions{.fua = true, .preflush = true}}) {
        const Disk disk = open("data");
        ASSERT_EQ(write(disk, 'a'), 0);
        ++store.cache;  // The server's machine ends.
        restart();
        EXPECT_EQ(write(disk, 'C', options), EIO) << "a commit record over lost data";
        EXPECT_EQ(content(), 'a');
        EXPECT_EQ(code_of(disk.flush()), EIO);
        EXPECT_EQ(code_of(disk.flush()), EIO) << "again";
        EXPECT_EQ(write(disk, 'b'), 0) << "this promises nothing";
        expect_done(disk.close());
        const Disk fresh = open("data");
        EXPECT_EQ(write(fresh, 'd', options), 0);
        expect_done(fresh.flush());
        expect_done(fresh.close());
    }
}

TEST_F(Generations, WithoutUnflushedWritesNothingIsLost) {
    serve(exports());
    const Disk disk = open("data");
    ASSERT_EQ(write(disk, 'a'), 0);
    ASSERT_EQ(write(disk, 'b', {.fua = true, .preflush = true}), 0);
    ++store.cache;
    restart();
    ASSERT_EQ(write(disk, 'c', {.fua = true, .preflush = true}), 0);
    expect_done(disk.flush());
}

TEST_F(Generations, AFailedFlushStaysFailed) {
    serve(exports());
    const Disk disk = open("data");
    ASSERT_EQ(write(disk, 'a'), 0);
    store.failing_flushes = 1;
    EXPECT_EQ(code_of(disk.flush()), EIO);
    EXPECT_EQ(code_of(disk.flush()), EIO) << "the kernel says it once, and the pages are gone";
    EXPECT_EQ(write(disk, 'b', {.fua = true}), EIO);
    restart();
    EXPECT_EQ(code_of(disk.flush()), EIO);
    expect_done(disk.close());
    const Disk fresh = open("data");
    expect_done(fresh.flush());
}

// Nobody hears of the error but the record.
TEST_F(Generations, AFlushThatFailsAtTheServersEndStaysFailed) {
    serve(exports());
    const Disk disk = open("data");
    ASSERT_EQ(write(disk, 'a'), 0);
    store.failing_flushes = 1;
    const std::uint16_t port = server->port();
    EXPECT_EQ(code_of(server->stop()), EIO);
    server.reset();
    serve(exports(), port);
    EXPECT_EQ(code_of(disk.flush()), EIO);
    EXPECT_EQ(write(disk, 'b', {.fua = true}), EIO);
    expect_done(disk.close());
    const Disk fresh = open("data");
    expect_done(fresh.flush());
}

TEST_F(Generations, TwoHandlesOfASessionHaveTheirOwnAccess) {
    serve(exports());
    const Disk reader = open("data", AccessMode::ReadOnly);
    const Disk first = open("data");
    const Disk second = open("data");
    EXPECT_EQ(write(reader, 'r'), EROFS);
    EXPECT_EQ(write(first, 'a'), 0);
    expect_done(reader.close());
    expect_done(first.close());
    EXPECT_EQ(open_by(other, "thief").error().code, EPERM);
    EXPECT_EQ(write(second, 'b'), 0);
    expect_done(second.close());
    EXPECT_TRUE(open_by(other, "thief"));
}

TEST_F(Generations, AWriterCanBeSeenAndEvicted) {
    serve(exports());
    const Disk first = open("data", AccessMode::ReadWrite, "first");
    ASSERT_EQ(write(first, 'a'), 0);
    ASSERT_EQ(server->writers().size(), 1u);
    EXPECT_EQ(server->writers()[0].session, "first");
    EXPECT_EQ(server->writers()[0].addresses, std::vector<std::string>{"127.0.0.1"});
    ASSERT_TRUE(server->evict("data"));
    EXPECT_EQ(server->evict("data").error().code, ENOENT);
    EXPECT_EQ(write(first, 'A'), ESTALE);
    const Disk second = open_by(other, "second").value();
    EXPECT_EQ(write(second, 'B'), 0);
    EXPECT_EQ(write(first, 'A'), ESTALE);
    EXPECT_EQ(content(), 'B');
}

TEST_F(Generations, AWithdrawnDiskFinishesWhatItHasBegun) {
    serve({});
    std::weak_ptr<StoreBackend> alive;
    {
        const auto backend = std::make_shared<StoreBackend>(store);
        alive = backend;
        ASSERT_TRUE(server->add({.name = "data", .backend = backend}));
    }
    const Disk disk = open("data");
    ASSERT_EQ(write(disk, 'a'), 0);
    store.holds_writes = true;
    const Bytes late(4096, std::byte{'A'});
    int written = -1, withdrawn = -1;
    rdma::TaskGroup group(loop);
    group.spawn(write_late(disk, late, written));
    ASSERT_TRUE(rdma::poll_until(loop, [&] { return store.held.size() == 1; }));
    const auto withdraw = [&]() -> rdma::Task<void> {
        const auto done = co_await server->withdraw("data");
        withdrawn = done ? 0 : done.error().code;
    };
    group.spawn(withdraw());
    EXPECT_EQ(code_of(disk.read(0, page)), ENOENT) << "nothing new is begun";
    EXPECT_EQ(open_by(other, "second").error().code, ENOENT);
    EXPECT_EQ(withdrawn, -1) << "the back end still has a write";
    EXPECT_FALSE(alive.expired());
    alive.lock()->perform(*store.held[0]);
    ASSERT_TRUE(loop.run(group.join()));
    EXPECT_EQ(withdrawn, 0);
    EXPECT_EQ(written, 0) << "what was begun is answered as it went";
    EXPECT_EQ(content(), 'A');
    EXPECT_TRUE(alive.expired());
    EXPECT_EQ(server->writers().size(), 0u);
}

TEST_F(Generations, AWithdrawnFileIsLockedNoLonger) {
    serve({{.name = "data", .backend = file_backend(loop, path).value()}});
    const Disk disk = open("data");
    ASSERT_EQ(write(disk, 'a'), 0);
    EXPECT_EQ(file_backend(loop, path).error().code, EBUSY);
    expect_done(server->withdraw("data"));
    auto again = file_backend(loop, path);
    ASSERT_TRUE(again) << again.error().why;
    EXPECT_EQ(write(disk, 'b'), ENOENT);
    ASSERT_TRUE(server->add({.name = "data", .backend = *std::move(again)}));
    EXPECT_EQ(write(disk, 'c'), 0) << "the same content, and no other writer since";
    expect_done(disk.flush());
}

TEST_F(Generations, AFlushThatFailsAtAWithdrawalStaysFailed) {
    serve(exports());
    const Disk disk = open("data");
    ASSERT_EQ(write(disk, 'a'), 0);
    store.failing_flushes = 1;
    EXPECT_EQ(code_of(server->withdraw("data")), EIO);
    ASSERT_TRUE(server->add(exports()[0]));
    EXPECT_EQ(code_of(disk.flush()), EIO);
    expect_done(disk.close());
    expect_done(open("data").flush());
}

TEST_F(Generations, ALossThatCouldNotBeKeptIsToldByTheNextExportOfTheStore) {
    serve(exports());
    int thrown = 0;
    loop.on_exception([&](std::exception_ptr) { ++thrown; });
    const Disk disk = open("data");
    ASSERT_EQ(write(disk, 'a'), 0);
    store.failing_flushes = 1;
    store.throws = "keep";
    EXPECT_EQ(code_of(server->withdraw("data")), EIO);
    EXPECT_FALSE(store.record.flush_failed);
    store.throws.clear();
    ASSERT_TRUE(server->add(exports()[0]));
    EXPECT_TRUE(store.record.flush_failed) << "now it is kept";
    EXPECT_EQ(code_of(disk.flush()), EIO);
    expect_done(disk.close());
    expect_done(open("data").flush());
    expect_done(server->withdraw("data"));
    ASSERT_TRUE(server->add(exports()[0]));
    expect_done(open("data").flush());
    EXPECT_EQ(thrown, 1);
}

TEST_F(Generations, OtherClientsMayOpenADiskThatIsServed) {
    serve(exports());
    const Disk first = open("data", AccessMode::ReadWrite, "first");
    const Disk reader = open_by(other, "reader", AccessMode::ReadOnly).value();
    EXPECT_EQ(server->set_guests("none", {}, {}).error().code, ENOENT);
    EXPECT_EQ(server->set_guests("data", {}, {"10/8"}).error().code, EINVAL);
    ASSERT_EQ(write(first, 'a'), 0);
    const std::uint64_t refused = server->statistics().refused;
    ASSERT_TRUE(server->set_guests("data", {"first"}, {"127.0.0.0/8"}));
    EXPECT_EQ(write(first, 'b'), 0);
    EXPECT_EQ(server->statistics().refused, refused) << "its disk was not closed";
    EXPECT_EQ(code_of(reader.read(0, page)), EACCES);
    ASSERT_TRUE(server->set_guests("data", {"reader"}, {}));
    EXPECT_EQ(write(first, 'c'), EACCES);
    EXPECT_TRUE(server->writers().empty());
    expect_done(reader.read(0, page));
}

TEST_F(Generations, WhatABackEndThrowsFailsItsOwnRequest) {
    serve(exports());
    int thrown = 0;
    loop.on_exception([&](std::exception_ptr) { ++thrown; });
    {
        const Disk disk = open("data");
        store.throws = "submit";
        EXPECT_EQ(write(disk, 'a'), EIO);
        store.throws.clear();
        EXPECT_EQ(write(disk, 'b'), 0);
        expect_done(disk.close());
    }
    EXPECT_EQ(thrown, 1);
    // An OPEN that fails in the background leaves no right to write.
    for (const std::string call : {"keep", "shape"}) {
        store.throws = call;
        EXPECT_EQ(try_open("data").error().code, EIO) << call;
        EXPECT_TRUE(server->writers().empty()) << call;
        store.throws.clear();
        const Disk disk = open_by(other, "other").value();
        EXPECT_EQ(write(disk, 'c'), 0) << call;
        expect_done(disk.close());
    }
    EXPECT_EQ(thrown, 3);
    EXPECT_EQ(server->statistics().in_flight, 0u);
    store.throws = "submit";
    EXPECT_EQ(code_of(server->stop().until(loop.after(30s))), EIO) << "it could not be flushed";
    server.reset();
    loop.poll();
    EXPECT_EQ(thrown, 4);
}

TEST_F(Generations, WithoutRoomForTheRecordNobodyIsGranted) {
    serve(exports());
    const Disk first = open("data", AccessMode::ReadWrite, "first");
    ASSERT_EQ(write(first, 'a'), 0);
    expect_done(first.close());
    const WriterRecord before = store.record;
    store.full = true;
    const auto refused = open_by(other, "second");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ENOSPC);
    EXPECT_NE(refused.error().why.find("no room to keep the writer record"), std::string::npos)
        << refused.error().why;
    EXPECT_NE(server->statistics().last_refusal.find("record not kept: No space left"),
              std::string::npos);
    EXPECT_TRUE(server->writers().empty());
    EXPECT_EQ(store.record, before);
    store.full = false;
    const Disk second = open_by(other, "second").value();
    EXPECT_EQ(write(second, 'b'), 0);
    EXPECT_GT(store.record.generation, before.generation);
}

TEST_F(Generations, WorkersAndChunksThatDisksCannotUseAreRefused) {
    rtrs::ServerOptions options;
    options.workers = {&loop};
    EXPECT_EQ(DiskServer::open(loop, options, exports()).error().code, EINVAL);
    for (const std::uint32_t size : {100'000u, 4096u, 6000u}) {
        rtrs::ServerOptions odd;
        odd.chunk_size = size;
        EXPECT_EQ(DiskServer::open(loop, odd, exports()).error().code, EINVAL) << size;
    }
}

}  // namespace
}  // namespace feroce::block
