// A client that gets no memory in the middle of an OPEN that it does in the background, and a
// server that gets none for the writer record of one.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "block/test_server.hpp"

namespace {

std::atomic<std::size_t> refused_size = 0;

}  // namespace

// In place of the library's. Not inline: the compiler would see one half of a pair.
[[gnu::noinline]] void* operator new(std::size_t size) {
    if (size == refused_size.load(std::memory_order_relaxed)) throw std::bad_alloc();
    if (void* const memory = std::malloc(size)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return size == refused_size.load(std::memory_order_relaxed) ? nullptr : std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

namespace feroce::block {
namespace no_memory_test {
namespace {

using namespace std::chrono_literals;

class NoMemory : public ServedDisks {
protected:
    rtrs::SessionOptions at_server() const {
        rtrs::SessionOptions options;
        options.port = server->port();
        return options;
    }
};

TEST_F(NoMemory, AnOpenInTheBackgroundFailsTheRequestsThatNeedIt) {
    // A copy of it has a size that nothing else has.
    const std::string name(211, 'n');
    const auto backend = memory_backend(kTestDiskSize, 1).value();
    serve({{.name = name, .backend = backend}});
    const Disk disk = open(name);
    std::vector<std::byte> page(4096);
    expect_done(disk.read(0, page));
    expect_done(server->withdraw(name));
    ASSERT_TRUE(server->add({.name = name, .backend = backend}));
    refused_size = name.size() + 1;
    const auto refused = loop.run(disk.read(0, page).within(20s));
    refused_size = 0;
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ENOMEM) << refused.error().why;
    expect_done(disk.read(0, page).within(20s));
    expect_done(disk.close().within(20s));
}

TEST_F(NoMemory, AWriterRecordThatCannotBeCopiedFailsTheOpenAndNoLater) {
    const auto backend = memory_backend(kTestDiskSize, 1).value();
    RecordRequest request;
    request.record = backend->writer_record().value();
    // Again a size that nothing else has.
    constexpr std::size_t kClients = 43;
    for (std::size_t i = 0; i < kClients; ++i)
        request.record.overtaken.push_back({static_cast<std::byte>(i + 1)});
    request.done = [](RecordRequest&, int) {};
    backend->keep(request);
    serve({{.name = "data", .backend = backend}});
    int thrown = 0;
    loop.on_exception([&](std::exception_ptr) { ++thrown; });
    refused_size = kClients * sizeof(ClientId);
    const auto refused = try_open("data");
    refused_size = 0;
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EIO) << refused.error().why;
    EXPECT_EQ(thrown, 1);
    EXPECT_TRUE(server->writers().empty());
    const auto opened =
        loop.run(client.open("test", {{"127.0.0.1"}}, "data", AccessMode::ReadWrite, at_server())
                     .within(20s));
    ASSERT_TRUE(opened) << opened.error().why;
    expect_done(opened->close().within(20s));
    expect_done(server->stop().until(loop.after(20s)));
}

}  // namespace
}  // namespace no_memory_test
}  // namespace feroce::block
