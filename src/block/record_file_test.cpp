// The writer record on the disk: what is read, what is refused, and that none is ever half.
#include "block/record_file.hpp"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace feroce::block {
namespace record_file_test {
namespace {

constexpr std::uint64_t kBacking = 77;

class RecordFiles : public testing::Test {
protected:
    RecordFiles() {
        char pattern[] = "/var/tmp/feroce-record-XXXXXX";
        folder = ::mkdtemp(pattern);
        std::ofstream(folder + "/disk") << "content";
    }
    ~RecordFiles() override { std::filesystem::remove_all(folder); }

    RecordFile file() const { return {folder + "/disk", false, ""}; }
    void put(const std::string& text) const { std::ofstream(file().path()) << text; }
    std::string text() const {
        std::ostringstream out;
        out << std::ifstream(file().path()).rdbuf();
        return out.str();
    }
    static WriterRecord some() {
        WriterRecord record{.store = 5, .generation = 9, .flush_failed = true};
        record.holders[0] = {{std::byte{0xab}}, 3};
        record.holders[1] = {{std::byte{0xcd}}, 4};
        return record;
    }

    std::string folder;
};

TEST_F(RecordFiles, WhatIsKeptIsRead) {
    EXPECT_FALSE(file().load(kBacking).value().has_value());
    ASSERT_EQ(file().save(some(), kBacking), 0);
    EXPECT_EQ(file().load(kBacking).value(), some());
    EXPECT_FALSE(file().load(kBacking + 1).value().has_value()) << "that of another store";
}

// What a server that was killed in the middle of a save leaves.
TEST_F(RecordFiles, APartOfANewOneIsNotLookedAt) {
    ASSERT_EQ(file().save(some(), kBacking), 0);
    std::ofstream(file().path() + ".new") << "feroce-writer-rec";
    EXPECT_EQ(file().load(kBacking).value(), some());
    const WriterRecord next{.store = 5, .generation = 10};
    ASSERT_EQ(file().save(next, kBacking), 0);
    EXPECT_EQ(file().load(kBacking).value(), next);
}

TEST_F(RecordFiles, APartOfOneIsRefusedAndNotIgnored) {
    ASSERT_EQ(file().save(some(), kBacking), 0);
    const std::string whole = text();
    for (std::size_t size = 0; size + 1 < whole.size(); ++size) {
        put(whole.substr(0, size));
        const auto read = file().load(kBacking);
        ASSERT_FALSE(read) << size;
        EXPECT_EQ(read.error().code, EINVAL);
        EXPECT_NE(read.error().why.find("is no writer record"), std::string::npos);
    }
    put("feroce-writer-record 3\nbacking 77\nstore 5\ngeneration 9\nend\n");
    EXPECT_FALSE(file().load(kBacking)) << "one of a later version";
}

TEST_F(RecordFiles, TheOlderFormIsRead) {
    const std::string client(32, 'a');
    put("feroce-writer-record 1\nbacking 77\nstore 5\ngeneration 9\nflush_failed 1\nholder " +
        client + "\novertaken " + client + "\novertaken " + client + "\nend\n");
    const WriterRecord expected{.store = 5, .generation = 9, .flush_failed = true};
    EXPECT_EQ(file().load(kBacking).value(), expected);
}

// As sysfs shows a disk of a WWID under a number, with a partition of the next number.
void plug_in(const std::string& sysfs, int number, const std::string& wwid) {
    const std::string disk = sysfs + "/devices/" + std::to_string(number);
    const std::string part = disk + "/part";
    std::filesystem::create_directories(disk + "/device");
    std::filesystem::create_directories(part);
    std::filesystem::create_directories(sysfs + "/dev/block");
    std::ofstream(disk + "/device/wwid") << wwid << '\n';
    std::ofstream(part + "/partition") << "1\n";
    for (const auto& [minor, at] : {std::pair(number, disk), std::pair(number + 1, part)}) {
        const std::string link = sysfs + "/dev/block/8:" + std::to_string(minor);
        std::filesystem::remove(link);
        std::filesystem::create_directory_symlink(at, link);
    }
}

TEST_F(RecordFiles, AnotherDeviceOfTheSameNumberIsAnotherStore) {
    const std::string sysfs = folder + "/sys";
    const auto identity = [&](unsigned minor) { return device_identity(makedev(8, minor), sysfs); };
    const std::uint64_t unknown = identity(16);
    plug_in(sysfs, 16, "naa.5000");
    plug_in(sysfs, 32, "naa.6000");
    const std::uint64_t disk = identity(16), part = identity(17);
    EXPECT_NE(disk, unknown);
    EXPECT_NE(disk, part);
    EXPECT_EQ(identity(16), disk);
    plug_in(sysfs, 16, "naa.6000");
    plug_in(sysfs, 32, "naa.5000");
    EXPECT_NE(identity(16), disk) << "they came in another order";
    EXPECT_NE(identity(17), part);
    plug_in(sysfs, 16, "naa.5000");
    EXPECT_EQ(identity(16), disk);
    EXPECT_EQ(identity(17), part);
}

TEST_F(RecordFiles, AFolderThatIsGoneIsTold) {
    const RecordFile gone(folder + "/disk", false, folder + "/state");
    std::filesystem::remove_all(folder + "/state");
    EXPECT_EQ(gone.save(some(), kBacking), ENOENT);
}

}  // namespace
}  // namespace record_file_test
}  // namespace feroce::block
