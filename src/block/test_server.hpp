// What tests of the room share: a server of disks on loopback, in the test's own loop.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "feroce/block/client.hpp"
#include "feroce/block/server.hpp"

namespace feroce::block {

using Bytes = std::vector<std::byte>;

inline constexpr std::uint64_t kTestDiskSize = 4 << 20;

class ServedDisks : public testing::Test {
protected:
    ServedDisks() {
        char pattern[] = "/var/tmp/feroce-disks-XXXXXX";
        folder = ::mkdtemp(pattern);
        path = folder + "/disk";
        const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
        EXPECT_EQ(::ftruncate(fd, kTestDiskSize), 0);
        ::close(fd);
    }
    ~ServedDisks() override { std::filesystem::remove_all(folder); }

    std::vector<Export> all_kinds() {
        return {{.name = "memory", .backend = memory_backend(kTestDiskSize, 1).value()},
                {.name = "file", .backend = file_backend(loop, path).value()},
                {.name = "null", .backend = null_backend(kTestDiskSize)}};
    }
    void serve(std::vector<Export> exports, std::uint16_t port = 0) {
        rtrs::ServerOptions options;
        options.address = "127.0.0.1";
        options.port = port;
        options.queue_depth = 16;
        auto opened = DiskServer::open(loop, options, std::move(exports), book);
        ASSERT_TRUE(opened) << opened.error().why;
        server = *std::move(opened);
    }
    void stop() {
        const auto stopped = loop.run(server->stop());
        EXPECT_TRUE(stopped) << stopped.error().why;
        server.reset();
    }
    rdma::Result<Disk> try_open(const std::string& name, AccessMode access = AccessMode::ReadWrite,
                                const std::string& session = "test",
                                rtrs::SessionOptions options = {}) {
        options.port = server->port();
        return loop.run(client.open(session, {{"127.0.0.1"}}, name, access, options));
    }
    Disk open(const std::string& name, AccessMode access = AccessMode::ReadWrite,
              const std::string& session = "test") {
        auto opened = try_open(name, access, session);
        if (!opened) ADD_FAILURE() << opened.error().why;
        return *opened;
    }
    void expect_done(rdma::Task<rdma::Result<>> task) {
        const auto done = loop.run(std::move(task));
        EXPECT_TRUE(done) << done.error().why;
    }
    int code_of(rdma::Task<rdma::Result<>> task) {
        const auto done = loop.run(std::move(task));
        return done ? 0 : done.error().code;
    }

    rdma::RealRuntime runtime;
    rdma::Loop loop{runtime};
    std::string folder;
    std::string path;
    std::string book;  // Of the server; empty: it has none.
    std::optional<DiskServer> server;
    DiskClient client{loop};
};

inline std::vector<std::byte> noise(std::size_t size, unsigned seed) {
    std::vector<std::byte> out(size);
    std::uint64_t state = seed;
    for (std::byte& byte : out) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        byte = static_cast<std::byte>(state >> 56);
    }
    return out;
}

}  // namespace feroce::block
