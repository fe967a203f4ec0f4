#include "process/xrc_files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace feroce::process {
namespace {

class XrcFilesTest : public testing::Test {
protected:
    ~XrcFilesTest() override { ::close(file); }
    const int file = ::memfd_create("xrc", MFD_CLOEXEC);
    device::XrcDomains domains;
    XrcFiles files{domains};
};

TEST_F(XrcFilesTest, TheSameFileGivesTheSameDomain) {
    EXPECT_EQ(files.open(file, 0).error().code, ENOENT);
    const auto first = files.open(file, O_CREAT);
    ASSERT_TRUE(first);
    const int again = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
    const auto second = files.open(again, 0);
    ::close(again);
    ASSERT_TRUE(second);
    EXPECT_EQ(*first, *second);
    EXPECT_EQ(files.open(file, O_CREAT | O_EXCL).error().code, EINVAL);
    EXPECT_TRUE(files.close(*first));
    EXPECT_TRUE(files.open(file, 0)) << "one opening was left";
    EXPECT_TRUE(files.close(*first));
    EXPECT_TRUE(files.close(*first));
    EXPECT_EQ(files.open(file, 0).error().code, ENOENT);
}

TEST_F(XrcFilesTest, PrivateDomainsDiffer) {
    const auto first = files.open(-1, 0), second = files.open(-1, 0);
    ASSERT_TRUE(first && second);
    EXPECT_NE(*first, *second);
    EXPECT_TRUE(files.close(*first));
    EXPECT_TRUE(files.close(*second));
    EXPECT_EQ(files.open(-2, O_CREAT).error().code, EBADF);
}

// As in a forked child, which has other domains.
TEST_F(XrcFilesTest, AnotherProcessObjectKnowsNothingOfThem) {
    ASSERT_TRUE(files.open(file, O_CREAT));
    device::XrcDomains other_domains;
    XrcFiles others(other_domains);
    EXPECT_EQ(others.open(file, 0).error().code, ENOENT);
}

}  // namespace
}  // namespace feroce::process
