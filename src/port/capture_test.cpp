#include "port/capture.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace feroce::port {
namespace {

class CaptureTest : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern = testing::TempDir() + "captureXXXXXX";
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        folder = pattern;
        path = folder / "x.pcapng";
    }
    void TearDown() override { std::filesystem::remove_all(folder); }

    static void write_packets(Capture& capture, int count) {
        const std::array<std::byte, 64> payload{};
        for (int i = 0; i < count; ++i)
            capture.write(
                {.address = {Gid::from_v4(1), Gid::from_v4(2), 0xc000}, .udp_payload = payload});
    }

    std::filesystem::path folder;
    std::filesystem::path path;
};

TEST_F(CaptureTest, AForkedChildLeavesItsParentsFileAlone) {
    const std::unique_ptr<Capture> parents = Capture::open(path);
    ASSERT_NE(parents, nullptr);
    write_packets(*parents, 3);
    const std::uintmax_t size = std::filesystem::file_size(path);
    const pid_t child = ::fork();
    if (child == 0) {
        parents->abandon();
        const std::unique_ptr<Capture> own = Capture::open(path);
        if (own) write_packets(*own, 5);
        ::_exit(own ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(std::filesystem::file_size(path), size);
    EXPECT_GT(std::filesystem::file_size(path.string() + "." + std::to_string(child)), size);
}

TEST_F(CaptureTest, ALaterProcessStartsTheFileAgain) {
    std::uintmax_t size = 0;
    {
        const std::unique_ptr<Capture> first = Capture::open(path);
        write_packets(*first, 5);
        size = std::filesystem::file_size(path);
    }
    const std::unique_ptr<Capture> second = Capture::open(path);
    write_packets(*second, 1);
    EXPECT_LT(std::filesystem::file_size(path), size);
}

TEST_F(CaptureTest, AnAbandonedFileMayBeOpenedByOthers) {
    const std::unique_ptr<Capture> first = Capture::open(path);
    write_packets(*first, 5);
    const std::uintmax_t size = std::filesystem::file_size(path);
    first->abandon();
    const std::unique_ptr<Capture> second = Capture::open(path);
    write_packets(*first, 9);
    EXPECT_LT(std::filesystem::file_size(path), size);
}

}  // namespace
}  // namespace feroce::port
