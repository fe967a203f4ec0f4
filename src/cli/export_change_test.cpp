#include "cli/export_change.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory_resource>
#include <new>
#include <optional>
#include <semaphore>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "cli/export.hpp"
#include "cli/output.hpp"
#include "feroce/block/backend.hpp"
#include "feroce/task_group.hpp"
#include "rdma/test_until.hpp"

namespace {

std::thread::id loop_thread;
std::atomic<int> syncs_by_loop = 0, syncs_by_threads = 0;
std::atomic<bool> disk_is_dead = false;
std::atomic<int> stuck_syncs = 0;
std::binary_semaphore disk_answers{0};

}  // namespace

// In place of the C library's: a writer record is made durable by it.
extern "C" int fsync(int fd) {
    ++(std::this_thread::get_id() == loop_thread ? syncs_by_loop : syncs_by_threads);
    if (disk_is_dead) {
        ++stuck_syncs;
        disk_answers.acquire();
    }
    return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace feroce::cli {
namespace export_change_test {
namespace {

ExportConfig config_of(const std::vector<std::string>& exports) {
    ExportConfig config;
    for (const std::string& text : exports) config.exports.push_back(parse_export(text));
    return config;
}

std::vector<std::string> names(const std::vector<ExportSpec>& specs) {
    std::vector<std::string> out;
    for (const ExportSpec& spec : specs) out.push_back(spec.name);
    return out;
}

using Names = std::vector<std::string>;

TEST(ExportChange, WhatIsTheSameIsLeftAlone) {
    const ExportConfig config = config_of({"a=memory:1M", "b=/b,ro,session=x"});
    const ExportChange change = compare(config, config);
    EXPECT_EQ(names(change.withdrawn), Names{});
    EXPECT_EQ(names(change.opened), Names{});
    EXPECT_EQ(names(change.admitting), Names{});
}

TEST(ExportChange, AddedRemovedAndReplaced) {
    const ExportChange change = compare(
        config_of({"same=memory:1M", "gone=memory:1M", "place=/a", "way=/b", "who=/c"}),
        config_of({"who=/c,session=x", "same=memory:1M", "place=/d", "way=/b,ro", "new=null:1M"}));
    EXPECT_EQ(names(change.withdrawn), (Names{"gone", "place", "way"}));
    EXPECT_EQ(names(change.opened), (Names{"place", "way", "new"}));
    EXPECT_EQ(names(change.admitting), Names{"who"});
    EXPECT_EQ(change.withdrawn[1].path, "/a");
    EXPECT_EQ(change.opened[0].path, "/d");
}

std::string trouble(ExportConfig now, ExportConfig next) {
    find_files(now);
    find_files(next);
    try {
        compare(now, next);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

TEST(ExportChange, WhatAServerCannotBecomeIsRefused) {
    const ExportConfig now = config_of({"a=memory:1M"});
    ExportConfig next = now;
    next.port = 99;
    EXPECT_EQ(trouble(now, next),
              "the port cannot be changed while the server runs; start it again");
    next = now;
    next.queue_depth = 7;
    EXPECT_NE(trouble(now, next).find("queue_depth"), std::string::npos);
    EXPECT_NE(trouble(now, config_of({"a=memory:1M", "a=memory:2M"})).find("same name"),
              std::string::npos);
    EXPECT_NE(trouble(now, config_of({"a=memory:1M,from=10/8"})).find("10.0.0.0/8"),
              std::string::npos);
    EXPECT_NE(trouble(now, config_of({"..=memory:1M"})), "");
}

TEST(ExportChange, OneFileIsKnownUnderTwoNames) {
    const std::string folder = testing::TempDir() + "feroce-export-change-test";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/file") << "x";
    std::filesystem::create_hard_link(folder + "/file", folder + "/link");
    const std::string a = "a=" + folder + "/file", b = "b=" + folder + "/link";
    EXPECT_NE(trouble(config_of({a}), config_of({a, b})).find("would write one file"),
              std::string::npos);
    EXPECT_EQ(trouble(config_of({a}), config_of({a, b + ",ro"})), "");
    EXPECT_EQ(trouble(config_of({a}), config_of({b})), "");
    std::filesystem::remove_all(folder);
}

rdma::Result<block::DiskServer> open_server(rdma::Loop& loop,
                                            std::vector<block::Export> exports = {}) {
    rtrs::ServerOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    return block::DiskServer::open(loop, options, std::move(exports));
}

class FlushesNothing : public block::Backend {
public:
    block::Shape shape() override { return memory_->shape(); }
    void submit(block::BackendRequest& request) override {
        if (request.kind != block::IoKind::Flush) return memory_->submit(request);
        request.done(request, EIO);
    }

private:
    std::shared_ptr<block::Backend> memory_ = block::memory_backend(1 << 20, 1).value();
};

TEST(ServedExports, EveryFlushThatFailedIsTold) {
    rdma::RealRuntime runtime;
    rdma::Loop loop(runtime);
    const auto broken = [](const std::string& name) {
        return block::Export{.name = name, .backend = std::make_shared<FlushesNothing>()};
    };
    auto server = open_server(loop, {broken("a"), broken("b")});
    ASSERT_TRUE(server) << server.error().why;
    ServedExports served(loop, *server, config_of({"a=memory:1M", "b=memory:1M"}));
    const auto outcome = loop.run(served.change_to([] { return config_of({"c=memory:1M"}); }));
    ASSERT_EQ(outcome.lines.size(), 3u);
    EXPECT_EQ(outcome.lines[0], "a: withdrawn");
    EXPECT_EQ(outcome.lines[1], "b: withdrawn");
    EXPECT_NE(outcome.trouble.find("the disk a could not be flushed"), std::string::npos)
        << outcome.trouble;
    EXPECT_NE(outcome.trouble.find("the disk b could not be flushed"), std::string::npos)
        << outcome.trouble;
    EXPECT_TRUE(loop.run(server->stop()));
}

TEST(ServedExports, WhatMayBlockIsDoneByThreads) {
    const std::string folder = testing::TempDir() + "feroce-served-exports-test";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/disk") << "";
    std::filesystem::resize_file(folder + "/disk", 1 << 20);
    {
        rdma::RealRuntime runtime;
        rdma::Loop loop(runtime);
        auto server = open_server(loop);
        ASSERT_TRUE(server) << server.error().why;
        ServedExports served(loop, *server, config_of({}));
        loop_thread = std::this_thread::get_id();
        syncs_by_loop = syncs_by_threads = 0;
        bool reads_in_loop = true;
        const auto changed_to = [&](const std::string& spec) {
            const auto read = [&reads_in_loop, spec] {
                reads_in_loop = std::this_thread::get_id() == loop_thread;
                return config_of({spec});
            };
            const auto outcome = loop.run(served.change_to(read));
            EXPECT_EQ(outcome.trouble, "");
            EXPECT_FALSE(reads_in_loop);
            EXPECT_EQ(syncs_by_loop, 0);
            return outcome.lines.empty() ? "" : outcome.lines.back();
        };
        EXPECT_NE(changed_to("data=" + folder + "/disk").find("data: 1048576 bytes"),
                  std::string::npos);
        EXPECT_GT(syncs_by_threads, 0);
        // It is withdrawn first.
        EXPECT_NE(changed_to("other=" + folder + "/disk").find("other: 1048576 bytes"),
                  std::string::npos);
        loop_thread = {};
        EXPECT_TRUE(loop.run(server->stop()));
    }
    std::filesystem::remove_all(folder);
}

TEST(ServedExports, WhatCannotBeReadChangesNothing) {
    rdma::RealRuntime runtime;
    rdma::Loop loop(runtime);
    auto server = open_server(loop);
    ASSERT_TRUE(server) << server.error().why;
    ServedExports served(loop, *server, config_of({}));
    const auto fails = []() -> ExportConfig { throw UsageError("a mistake"); };
    const auto outcome = loop.run(served.change_to(fails));
    EXPECT_EQ(outcome.trouble, "a mistake");
    EXPECT_TRUE(outcome.lines.empty());
    EXPECT_TRUE(loop.run(server->stop()));
}

// Whose time passes when it is told to.
class TestClock : public rdma::Runtime {
public:
    Instant now() override { return real_.now() + skipped; }
    void wait(Instant until, std::span<const int> fds) override {
        real_.wait(until == kNever ? until : until - skipped, fds);
    }
    void wake() override { real_.wake(); }
    void relax() override { real_.relax(); }
    std::pmr::memory_resource& memory() override { return real_.memory(); }
    std::uint64_t random() override { return real_.random(); }

    Duration skipped{};

private:
    rdma::RealRuntime real_;
};

// A server without exports, and a new file that it can be told to export.
class Reloads : public testing::Test {
protected:
    Reloads() {
        std::filesystem::remove_all(folder);
        std::filesystem::create_directory(folder);
        make_file(disk);
        server.emplace(open_server(loop).value());
        served.emplace(loop, *server, config_of({}));
        tasks.emplace(loop);
    }
    ~Reloads() override {
        disk_is_dead = false;
        tasks.reset();
        served.reset();
        EXPECT_TRUE(loop.run(server->stop()));
        server.reset();
        std::filesystem::remove_all(folder);
    }
    static void make_file(const std::string& path) {
        std::ofstream(path) << "";
        std::filesystem::resize_file(path, 1 << 20);
    }
    rdma::Task<void> change(std::function<ExportConfig()> read) {
        outcome = co_await served->change_to(std::move(read));
    }
    void begin(std::function<ExportConfig()> read) {
        outcome.reset();
        tasks->spawn(change(std::move(read)));
    }
    bool wait_for_outcome() {
        return rdma::poll_until(loop, [&] { return outcome.has_value(); });
    }
    std::string trouble_of(const std::vector<std::string>& exports) {
        begin([exports] { return config_of(exports); });
        return wait_for_outcome() ? outcome->trouble : "it does not end";
    }
    // Opening the file has begun and does not end.
    void begin_with_dead_disk() {
        disk_is_dead = true;
        stuck_syncs = 0;
        begin([this] { return config_of({"data=" + disk}); });
        ASSERT_TRUE(rdma::poll_until(loop, [] { return stuck_syncs == 1; }));
        EXPECT_FALSE(outcome);
    }
    // Whoever opened the file has let go of it.
    void revive_disk() {
        disk_is_dead = false;
        disk_answers.release();
        const auto is_free = [&] {
            return static_cast<bool>(open_export(loop, parse_export("x=" + disk)));
        };
        EXPECT_TRUE(rdma::poll_until(loop, is_free));
    }

    const std::string folder = testing::TempDir() + "feroce-reloads-test";
    const std::string disk = folder + "/disk";
    TestClock runtime;
    rdma::Loop loop{runtime};
    std::optional<block::DiskServer> server;
    std::optional<ServedExports> served;
    std::optional<ServedExports::Outcome> outcome;
    std::optional<rdma::TaskGroup> tasks;
};

TEST_F(Reloads, AFileThatDoesNotAnswerIsNamedAndGivenUp) {
    begin_with_dead_disk();
    testing::internal::CaptureStderr();
    runtime.skipped += Patience{}.before_telling;
    loop.poll();
    loop.poll();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(said.starts_with("feroce: " + disk + " does not answer;")) << said;
    EXPECT_FALSE(outcome);
    runtime.skipped += Patience{}.before_giving_up;
    ASSERT_TRUE(wait_for_outcome());
    EXPECT_TRUE(outcome->trouble.starts_with(disk + " does not answer;")) << outcome->trouble;
    EXPECT_TRUE(outcome->lines.empty());
    // The next one does not wait for it.
    disk_is_dead = false;
    make_file(folder + "/healthy");
    EXPECT_EQ(trouble_of({"other=" + folder + "/healthy"}), "");
    revive_disk();
    EXPECT_EQ(trouble_of({"other=" + folder + "/healthy", "data=" + disk}), "");
}

TEST_F(Reloads, AServerThatEndsWaitsForNoFile) {
    begin_with_dead_disk();
    served->stop();
    ASSERT_TRUE(wait_for_outcome());
    EXPECT_EQ(outcome->trouble, "the server is ending and waits no longer for " + disk);
    EXPECT_TRUE(outcome->lines.empty());
    disk_is_dead = false;
    EXPECT_NE(trouble_of({"data=" + disk}).find("is ending"), std::string::npos);
    revive_disk();
}

TEST_F(Reloads, AServerThatEndsWaitsForNoConfig) {
    std::atomic<bool> reads = false, has_read = false;
    std::binary_semaphore may_read{0};
    begin([&] {
        reads = true;
        may_read.acquire();
        has_read = true;
        return config_of({"data=memory:1M"});
    });
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return reads.load(); }));
    served->stop();
    EXPECT_TRUE(wait_for_outcome());
    may_read.release();
    EXPECT_TRUE(rdma::poll_until(loop, [&] { return has_read.load(); }));
    EXPECT_TRUE(outcome && outcome->lines.empty());
}

TEST_F(Reloads, FilesThatAreServedAreNotLookedAt) {
    EXPECT_EQ(trouble_of({"data=" + disk}), "");
    const std::string moved = folder + "/moved";
    std::filesystem::rename(disk, moved);
    make_file(disk);  // Another file took its path.
    EXPECT_NE(trouble_of({"data=" + disk, "more=" + moved}).find("would write one file"),
              std::string::npos);
    EXPECT_EQ(trouble_of({"data=" + disk}), "");
    EXPECT_EQ(trouble_of({"more=" + moved}), "") << "it is withdrawn first";
}

TEST(ServedExports, AnExceptionIsToldAndTheLoopGoesOn) {
    rdma::RealRuntime runtime;
    rdma::Loop loop(runtime);
    go_on_after_exceptions(loop);
    testing::internal::CaptureStderr();
    loop.throw_later(std::make_exception_ptr(std::bad_alloc()));
    loop.throw_later(std::make_exception_ptr(1));
    EXPECT_NO_THROW(loop.poll());
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "feroce: a request failed by an exception: std::bad_alloc\n"
              "feroce: a request failed by an exception\n");
}

}  // namespace
}  // namespace export_change_test
}  // namespace feroce::cli
