// The nbdkit plugin, called as nbdkit calls it: from threads of nbdkit's own, while the thread of
// the disk learns what has become of it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "feroce/block/server.hpp"
#include "feroce/workers.hpp"

// What nbdkit has for its plugins.
extern "C" void nbdkit_error(const char* format, ...) {
    va_list rest;
    va_start(rest, format);
    std::vfprintf(stderr, format, rest);
    std::fputc('\n', stderr);
    va_end(rest);
}
extern "C" void nbdkit_set_error(int /*code*/) {}

// What it has for nbdkit.
extern "C" nbdkit_plugin* plugin_init();

namespace feroce::block {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

class Plugin : public testing::Test {
protected:
    Plugin() {
        char pattern[] = "/var/tmp/feroce-plugin-XXXXXX";
        folder = ::mkdtemp(pattern);
        grow_to(4 * kMiB);
        workers.call(0, [this] {
            rdma::Loop& loop = workers.loop(0);
            std::vector<Export> exports{
                {.name = "data", .backend = file_backend(loop, folder + "/disk").value()}};
            server = DiskServer::open(loop, {.address = "127.0.0.1", .port = 0, .queue_depth = 16},
                                      std::move(exports))
                         .value();
        });
    }
    ~Plugin() override {
        workers.call(0, [this] {
            EXPECT_TRUE(server->stop().wait());
            server.reset();
        });
        std::filesystem::remove_all(folder);
    }

    void grow_to(std::int64_t size) const {
        const int fd = ::open((folder + "/disk").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ASSERT_EQ(::ftruncate(fd, size), 0);
        ::close(fd);
    }
    // As nbdkit begins: its parameters, then its threads.
    static const nbdkit_plugin& start(std::uint16_t port) {
        const nbdkit_plugin& plugin = *plugin_init();
        EXPECT_EQ(plugin.config("server", "127.0.0.1"), 0);
        EXPECT_EQ(plugin.config("port", std::to_string(port).c_str()), 0);
        EXPECT_EQ(plugin.config("disk", "data"), 0);
        EXPECT_EQ(plugin.config("session", "plugin"), 0);
        EXPECT_EQ(plugin.config_complete(), 0);
        EXPECT_EQ(plugin.after_fork(), 0);
        return plugin;
    }

    std::string folder;
    rdma::Workers workers = rdma::Workers::start(1).value();
    std::optional<DiskServer> server;
};

// What a connection was told stays, whatever the thread of the disk learns meanwhile.
TEST_F(Plugin, AConnectionsDiskIsAsItWasWhenItBegan) {
    const nbdkit_plugin& plugin = start(server->port());
    void* const first = plugin.open(0);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(plugin.get_size(first), 4 * kMiB);
    std::atomic<bool> over = false;
    std::atomic<int> others = 0;
    std::thread asks([&] {
        while (!over.load())
            if (plugin.get_size(first) != 4 * kMiB || plugin.can_write(first) != 1) ++others;
    });
    for (std::int64_t i = 1; i <= 8; ++i) {
        grow_to((4 + i) * kMiB);
        void* const next = plugin.open(0);
        EXPECT_NE(next, nullptr);
        if (next == nullptr) break;
        EXPECT_EQ(plugin.get_size(next), (4 + i) * kMiB);
        EXPECT_EQ(plugin.get_size(first), 4 * kMiB);
        plugin.close(next);
    }
    over = true;
    asks.join();
    EXPECT_EQ(others, 0);
    plugin.close(first);
    plugin.unload();
}

}  // namespace
}  // namespace feroce::block
