// The door of a running `feroce export`: a socket in the user's own directory by which the command
// asks who holds the right to write, and takes it away.
#pragma once

#include <string>

#include "cli/output.hpp"
#include "feroce/block/server.hpp"

namespace feroce::cli {

// The server's side.
class ExportDoor {
public:
    explicit ExportDoor(block::Server& server);
    ~ExportDoor();
    ExportDoor(const ExportDoor&) = delete;
    ExportDoor& operator=(const ExportDoor&) = delete;

    void answer_all();  // Does not wait.

private:
    std::string answer(const std::string& request);

    block::Server& server_;
    std::string path_;
    int fd_ = -1;  // -1: nobody can ask.
};

// The command's side: of all servers of this user. The exit status.
int show_writers(const OutputOptions& options);
int evict_writer(const std::string& disk);

}  // namespace feroce::cli
