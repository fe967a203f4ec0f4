// The file of a flush mark: what is taken for one, what a damaged one means, and that no other file
// is written in its place.
#include "block/mark_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "block/durable_file.hpp"

namespace feroce::block::mark_file_test {
namespace {

constexpr std::uint64_t kBacking = 5, kBoot = 6;

class MarkFiles : public testing::Test {
protected:
    MarkFiles() {
        char pattern[] = "/var/tmp/feroce-mark-XXXXXX";
        folder = ::mkdtemp(pattern);
        record = folder + "/disk.feroce";
        path = record + ".flush";
    }
    ~MarkFiles() override { std::filesystem::remove_all(folder); }

    static void put(const std::string& where, const std::string& text) {
        std::ofstream(where, std::ios::trunc) << text;
    }
    static std::string text(const std::string& where) {
        std::ostringstream out;
        out << std::ifstream(where).rdbuf();
        return out.str();
    }
    MarkState found() const { return MarkFile::open(record, kBacking, kBoot).value()->found(); }
    std::string fresh() const {
        EXPECT_EQ(found(), MarkState::Clear);
        return text(path);
    }
    void expect_refused() const {
        const auto opened = MarkFile::open(record, kBacking, kBoot);
        ASSERT_FALSE(opened);
        EXPECT_EQ(opened.error().code, EPERM);
        EXPECT_NE(opened.error().why.find("state=FOLDER"), std::string::npos);
    }

    std::string folder, record, path;
};

TEST_F(MarkFiles, OneThatIsTooLongIsMadeRightAndWorksAfterwards) {
    const std::string right = fresh();
    put(path, std::string(400, 'x'));
    EXPECT_EQ(found(), MarkState::Clear);
    EXPECT_EQ(text(path), right);
    EXPECT_EQ(MarkFile::open(record, kBacking, kBoot).value()->begin(), 0);
    EXPECT_EQ(found(), MarkState::InFlight) << "its server was killed";
    put(path, text(path) + "more");
    EXPECT_EQ(found(), MarkState::InFlight);
    EXPECT_EQ(text(path).size(), right.size());
}

TEST_F(MarkFiles, AStateThatCannotBeReadIsAFailure) {
    const std::string title = fresh().substr(0, fresh().size() - 2);
    for (const char* const end : {"", "x\n", "\n", "2\n", "9"}) {
        put(path, title + end);
        EXPECT_EQ(found(), MarkState::Failed) << '"' << end << '"';
        EXPECT_EQ(text(path), title + "2\n");
    }
    put(path, title + "1");
    EXPECT_EQ(found(), MarkState::InFlight);
}

TEST_F(MarkFiles, AnotherFilesSecondNameIsNotWritten) {
    put(folder + "/precious", "precious");
    std::filesystem::create_hard_link(folder + "/precious", path);
    expect_refused();
    std::filesystem::remove(path);
    std::filesystem::create_symlink("precious", path);
    EXPECT_FALSE(MarkFile::open(record, kBacking, kBoot));
    EXPECT_EQ(text(folder + "/precious"), "precious");
}

TEST_F(MarkFiles, WhatIsNoFileIsRefused) {
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    expect_refused();
}

TEST_F(MarkFiles, TheFileOfAnotherUserIsRefused) {
    const std::string right = fresh();
    if (::geteuid() != 0) return;  // Only root can give it away, and open it then.
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
    expect_refused();
    EXPECT_EQ(text(path), right);
}

TEST_F(MarkFiles, ANewOneOverwritesNoOtherFile) {
    put(folder + "/precious", "precious");
    const std::string kept = folder + "/kept";
    std::filesystem::create_hard_link(folder + "/precious", kept + ".new");
    EXPECT_EQ(save_durably(kept, "text"), 0);
    std::filesystem::create_symlink("precious", kept + ".new");
    EXPECT_EQ(save_durably(kept, "other"), 0);
    EXPECT_EQ(text(kept), "other");
    EXPECT_EQ(text(folder + "/precious"), "precious");
}

}  // namespace
}  // namespace feroce::block::mark_file_test
