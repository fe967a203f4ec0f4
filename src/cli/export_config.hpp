// What `feroce export` is to serve, from its words and its file. The file has a setting a line:
//
//     address = 10.0.0.1
//     port = 1234
//     export data = /srv/data.img, session=web-*, from=10.0.0.0/24
//     export scratch = memory:1G
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace feroce::cli {

// Which file or device a path leads to: the same for all its paths.
struct FileId {
    bool is_device = false;
    std::uint64_t device = 0;
    std::uint64_t inode = 0;  // Of a file.

    bool operator==(const FileId&) const = default;
};

struct ExportSpec {
    enum class Kind : std::uint8_t { File, Memory, Null };

    std::string name;
    Kind kind = Kind::File;
    std::string path;        // Of files.
    std::uint64_t size = 0;  // Of the others.
    bool read_only = false;
    bool direct = true;
    std::vector<std::string> sessions = {};
    std::vector<std::string> addresses = {};
    std::string state = {};  // The folder of the writer record; empty: the back end's choice.
    std::optional<FileId> file = {};  // Found when it was opened, or shortly before; not read.
};

struct ExportConfig {
    std::string address;
    std::uint16_t port = 1234;
    std::uint16_t queue_depth = 512;
    std::uint32_t chunk_size = 128 << 10;
    std::vector<ExportSpec> exports;
};

// Both throw UsageError with one sentence.
ExportSpec parse_export(std::string_view text);  // NAME=PATH[,OPTION]...
void read_export_file(const std::string& path, ExportConfig& config);
std::uint64_t parse_size(std::string_view text);  // 4096, 64K, 10M, 1G, 2T.

}  // namespace feroce::cli
