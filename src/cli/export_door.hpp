// The door of a running `feroce export`: a socket in the user's own directory by which the command
// asks what it serves, which session holds the right to write, takes it away, and has the config
// read again.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <functional>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "feroce/block/server.hpp"

namespace feroce::cli {

// The server's side.
class ExportDoor {
public:
    // Says how it went: nothing, or a sentence.
    using Answer = std::function<void(const std::string& trouble)>;

    // `file` is the server's config, empty if it has none. `reload` may answer later, as long as
    // the door is there.
    ExportDoor(block::DiskServer& server, const std::string& file,
               std::function<void(Answer)> reload);
    ~ExportDoor();
    ExportDoor(const ExportDoor&) = delete;
    ExportDoor& operator=(const ExportDoor&) = delete;

    void answer_all();  // Does not wait.

private:
    std::string answer(const std::string& request);
    bool has_config(const std::string& asked) const;
    void send(const sockaddr_un& to, socklen_t size, const std::string& said) const;

    block::DiskServer& server_;
    std::string file_;  // As an absolute path.
    std::function<void(Answer)> reload_;
    std::string path_;
    int fd_ = -1;  // -1: nobody can ask.
};

// A disk that a server of this user has, as it tells.
struct ServedDisk {
    std::uint32_t pid = 0;
    std::string name;
    std::uint64_t size = 0;
    std::uint64_t reads = 0;
    std::uint64_t writes = 0;
    std::uint64_t read_bytes = 0;
    std::uint64_t written_bytes = 0;
    std::string writer = {};     // The session that may write it; several with commas.
    std::string addresses = {};  // That its paths came from.
};
std::vector<ServedDisk> served_disks();

// The command's side: of all servers of this user. The exit status.
int show_writers(const OutputOptions& options);
int evict_writer(const std::string& disk);
int reload_configs(const std::string& file);  // Empty: all.

}  // namespace feroce::cli
