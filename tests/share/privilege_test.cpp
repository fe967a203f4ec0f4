// Programs with more rights than their caller: nothing of the caller's environment counts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "net_space.hpp"
#include "verbs/abi.hpp"

namespace feroce::share {
namespace {

namespace fs = std::filesystem;

constexpr char kOpen[] = "--open";
constexpr char kSecret[] = "what only root may write\n";

// What the copy with more rights does. The variables that say otherwise are not for it.
int open_every_device() {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    int status = count > 0 ? 0 : 2;
    for (int i = 0; i < count; ++i)
        if (ibv_open_device(list[i]) == nullptr) status = 3;
    ibv_free_device_list(list);
    return status;
}

std::string contents(const fs::path& path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
}

class Privilege : public testing::Test {
protected:
    void SetUp() override {
        enter_private_network();
        char name[] = "/var/tmp/feroce-privilege-XXXXXX";
        ASSERT_NE(::mkdtemp(name), nullptr);
        folder = name;
        struct statvfs mount {};
        if (::statvfs(name, &mount) == 0 && (mount.f_flag & ST_NOSUID) != 0) {
            // Before the first assertion, so that ctest says "skipped" and hides no failure.
            fs::remove(folder);
            std::fprintf(
                stderr, "/var/tmp is mounted with nosuid: set-uid programs have no rights there\n");
            std::exit(kCannotRun);
        }
        ASSERT_EQ(::chmod(name, 0755), 0);
        fs::copy_file("/proc/self/exe", program());
        std::ofstream(secret()) << kSecret;
        ASSERT_EQ(::chmod(secret().c_str(), 0600), 0);
    }
    void TearDown() override { fs::remove_all(folder); }

    fs::path program() const { return folder / "copy"; }
    fs::path secret() const { return folder / "secret"; }
    // Its exit status when an ordinary user starts it.
    int run_as_ordinary_user() const {
        const pid_t child = ::fork();
        if (child == 0) {
            ::setenv("FEROCE_PCAP", secret().c_str(), 1);
            ::setenv("FEROCE_DEVICES", "none-of-these", 1);
            ::setenv("FEROCE_FAULTS", "nonsense", 1);
            if (become_ordinary_user())
                ::execl(program().c_str(), program().c_str(), kOpen, nullptr);
            ::_exit(99);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

    fs::path folder;
};

TEST_F(Privilege, ASetUidProgramIgnoresTheEnvironment) {
    ASSERT_EQ(::chmod(program().c_str(), 04755), 0);
    EXPECT_EQ(run_as_ordinary_user(), 0);
    EXPECT_EQ(contents(secret()), kSecret);
}

TEST_F(Privilege, AProgramWithFileCapabilitiesIgnoresTheEnvironment) {
    // linux/capability.h: vfs_cap_data, revision 2, effective; CAP_NET_BIND_SERVICE (10).
    const std::uint32_t capabilities[5] = {0x0200'0001, 1u << 10, 0, 0, 0};
    ASSERT_EQ(::chmod(program().c_str(), 0755), 0);
    ASSERT_EQ(
        ::setxattr(program().c_str(), "security.capability", capabilities, sizeof capabilities, 0),
        0)
        << "file capabilities cannot be set: " << std::strerror(errno);
    EXPECT_EQ(run_as_ordinary_user(), 0) << "FEROCE_DEVICES hides the devices";
}

// The check can fail: without more rights the same variables do count.
TEST_F(Privilege, AnOrdinaryProgramHeedsTheEnvironment) {
    ASSERT_EQ(::chmod(program().c_str(), 0755), 0);
    EXPECT_EQ(run_as_ordinary_user(), 2);
}

}  // namespace
}  // namespace feroce::share

int main(int count, char** arguments) {
    if (count == 2 && std::strcmp(arguments[1], feroce::share::kOpen) == 0)
        return feroce::share::open_every_device();
    testing::InitGoogleTest(&count, arguments);
    return RUN_ALL_TESTS();
}
