#include "cli/export_config.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "cli/output.hpp"

namespace feroce::cli {
namespace {

std::string complaint(const std::string& text) {
    try {
        parse_export(text);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

TEST(ExportConfig, AFileWithOptions) {
    const ExportSpec spec = parse_export(
        "data = /srv/a=b.img, ro, buffered, session=web-*,session=db, from=10.0.0.0/8");
    EXPECT_EQ(spec.name, "data");
    EXPECT_EQ(spec.kind, ExportSpec::Kind::File);
    EXPECT_EQ(spec.path, "/srv/a=b.img");
    EXPECT_TRUE(spec.read_only);
    EXPECT_FALSE(spec.direct);
    EXPECT_EQ(spec.sessions, (std::vector<std::string>{"web-*", "db"}));
    EXPECT_EQ(spec.addresses, (std::vector<std::string>{"10.0.0.0/8"}));
}

TEST(ExportConfig, MemoryAndNothing) {
    EXPECT_EQ(parse_export("m=memory:64K").size, 65536u);
    EXPECT_EQ(parse_export("m=memory:64K").kind, ExportSpec::Kind::Memory);
    EXPECT_EQ(parse_export("n=null:2T").size, std::uint64_t{2} << 40);
    EXPECT_EQ(parse_export("n=null:512").kind, ExportSpec::Kind::Null);
}

TEST(ExportConfig, MistakesAreNamed) {
    EXPECT_EQ(complaint("data"),
              "data is no export; write NAME=PATH, NAME=memory:SIZE or NAME=null:SIZE");
    EXPECT_NE(complaint("=x"), "");
    EXPECT_NE(complaint("data=,ro"), "");
    EXPECT_EQ(complaint("m=memory:100"), "a disk has whole sectors of 512 bytes, not 100");
    EXPECT_NE(complaint("m=memory:"), "");
    EXPECT_NE(complaint("m=memory:0"), "");
    EXPECT_NE(complaint("m=memory:99999999999T"), "");
    EXPECT_NE(complaint("m=memory:1K,rw").find("has an option rw"), std::string::npos);
    EXPECT_NE(complaint("m=memory:1K,session="), "");
}

TEST(ExportConfig, TheFile) {
    const std::string path = testing::TempDir() + "feroce-export-config-test";
    std::ofstream(path) << "# disks of this machine\naddress = 10.0.0.1\nport=99\n\n"
                           "queue_depth = 64   # few\nchunk_size = 1052672\n"
                           "export a = memory:1M\nexport b = /b, ro\n";
    ExportConfig config;
    read_export_file(path, config);
    EXPECT_EQ(config.address, "10.0.0.1");
    EXPECT_EQ(config.port, 99);
    EXPECT_EQ(config.queue_depth, 64);
    EXPECT_EQ(config.chunk_size, 1'052'672u);
    ASSERT_EQ(config.exports.size(), 2u);
    EXPECT_EQ(config.exports[1].path, "/b");
    std::ofstream(path) << "port = 99\nprot = 1\n";
    try {
        read_export_file(path, config);
        ADD_FAILURE() << "a setting that is none was taken";
    } catch (const UsageError& error) {
        EXPECT_EQ(error.what(), path + " line 2: there is no setting prot");
    }
    std::ofstream(path) << "port = 70000\n";
    EXPECT_THROW(read_export_file(path, config), UsageError);
    std::remove(path.c_str());
    EXPECT_THROW(read_export_file(path, config), UsageError);
}

}  // namespace
}  // namespace feroce::cli
