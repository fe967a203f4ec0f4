// A client that gets no memory in the middle of an OPEN that it does in the background, and a
// server that gets none while it answers.
#include <cerrno>
#include <memory>
#include <vector>

#include "base/test_refused_size.hpp"
#include "block/test_server.hpp"

namespace feroce::block {
namespace no_memory_test {
namespace {

using namespace std::chrono_literals;

class NoMemory : public ServedDisks {};

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

// It is kept by a thread, in which nothing catches what is thrown.
TEST_F(NoMemory, AWriterRecordThatCannotBeKeptFailsTheOpenAndNoLater) {
    // Of the record: a copy of it has a size that nothing else has.
    constexpr std::size_t kSize = 223;
    const std::string ending = ".feroce";
    const std::string file =
        folder + "/" + std::string(kSize - folder.size() - 1 - ending.size(), 'n');
    std::filesystem::copy_file(path, file);
    serve({{.name = "data", .backend = file_backend(loop, file).value()}});
    refused_size = kSize + 1;
    const auto refused = try_open("data");
    refused_size = 0;
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ENOMEM) << refused.error().why;
    EXPECT_TRUE(server->writers().empty());
    expect_done(open("data").close().within(20s));
    expect_done(server->stop().until(loop.after(20s)));
}

// Its flushes fail, at a moment when there is no memory for what a desk needs to remember a waiting
// answer, whatever that takes.
class FailingFlushes final : public Backend {
public:
    Shape shape() override {
        Shape shape;
        shape.size = kTestDiskSize;
        shape.volatile_cache = true;
        return shape;
    }
    void submit(BackendRequest& request) override {
        if (request.kind != IoKind::Flush) return request.done(request, 0);
        struct Refused {
            explicit Refused(std::size_t size) { refused_size = size; }
            ~Refused() { refused_size = 0; }
        };
        const Refused refused(sizes[flushes++ % sizes.size()]);
        request.done(request, EIO);
    }

    const std::vector<std::size_t> sizes{8, 16, 24, 32, 40, 48, 64};
    std::size_t flushes = 0;
};

TEST_F(NoMemory, AFailedFlushIsAnsweredAllTheSame) {
    const auto backend = std::make_shared<FailingFlushes>();
    serve({{.name = "data", .backend = backend}});
    loop.on_exception([](std::exception_ptr) {});
    // Of several handles: only the first failure of a generation changes the record.
    for (std::size_t i = 0; i < backend->sizes.size(); ++i) {
        const Disk disk = open("data");
        EXPECT_EQ(code_of(disk.flush().within(20s)), EIO) << "without " << backend->sizes[i];
        EXPECT_TRUE(backend->writer_record()->flush_failed);
        expect_done(disk.close().within(20s));
    }
    EXPECT_EQ(backend->flushes, backend->sizes.size());
    EXPECT_EQ(code_of(server->stop().until(loop.after(20s))), EIO);
}

}  // namespace
}  // namespace no_memory_test
}  // namespace feroce::block
