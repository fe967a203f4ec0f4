// The server of disks: exports back ends by name to RNBD clients, the kernel's and ours.
//
//     block::DiskServer server = block::DiskServer::open(loop, {}, {
//         {.name = "data", .backend = block::file_backend(loop, "/srv/data.img").value()},
//     }).value();
//     for (;;) loop.poll_or_wait();
//
// Nothing is exported that was not named. A client gets what it was promised: a flush is answered
// when the back end's is done. Belongs to its loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "feroce/block/backend.hpp"
#include "feroce/call.hpp"
#include "feroce/error.hpp"
#include "feroce/loop.hpp"
#include "feroce/rtrs/options.hpp"
#include "feroce/rtrs/server.hpp"
#include "feroce/task.hpp"

namespace feroce::block {

struct Export {
    // "SESSION/NAME" is what sessions called SESSION find as NAME, before one that is called NAME.
    std::string name;
    std::shared_ptr<Backend> backend;
    bool read_only = false;
    // The clients that may open it. A session's name, which may end in '*'; an address or network
    // such as 10.0.0.0/8. Empty: all. Every path of a session must come from such an address.
    std::vector<std::string> sessions = {};
    std::vector<std::string> addresses = {};
};

// A session that holds the right to write a disk.
struct Writer {
    std::string disk;
    std::string session;
    std::vector<std::string> addresses;  // That its paths came from.
    std::uint64_t generation = 0;
};

// A disk that is served, and what clients have asked of it since it was exported.
struct DiskStatistics {
    std::string disk;
    std::uint64_t size = 0;  // Bytes, when it was last looked at.
    std::uint64_t reads = 0;
    std::uint64_t writes = 0;
    std::uint64_t read_bytes = 0;
    std::uint64_t written_bytes = 0;
};

struct DiskServerStatistics {
    std::size_t open = 0;  // Disks that sessions have open.
    std::size_t in_flight = 0;
    std::uint64_t reads = 0;
    std::uint64_t writes = 0;
    std::uint64_t flushes = 0;
    std::uint64_t discards = 0;
    std::uint64_t zeroes = 0;
    std::uint64_t refused = 0;  // Requests that made no sense or were not allowed.
    std::uint64_t failed = 0;   // That the back end failed.
    std::string last_refusal;
    rtrs::ServerStatistics sessions;
};

// The book of the server of this port: in the folder that systemd gives ($STATE_DIRECTORY), or in
// /var/lib/feroce, which is made if it is missing. The error of one that cannot be written says
// what to do.
rdma::Result<std::string> default_book(std::uint16_t port);

class DiskServer {
public:
    // `book`: a file in which the server keeps what clients without generations, as the kernel's,
    // have open; one that another server has is waited for, two seconds, and then not used. Without
    // it such a client can go on with its disks after a restart of the server, but open no further
    // ones for writing in the same session.
    static rdma::Result<DiskServer> open(rdma::Loop& loop, rtrs::ServerOptions options,
                                         std::vector<Export> exports, const std::string& book = {});
    DiskServer(DiskServer&&) noexcept;
    DiskServer& operator=(DiskServer&&) noexcept;
    // After stop(), or when the back ends have nothing in flight and the book is not being saved.
    ~DiskServer();

    std::uint16_t port() const;
    // Why it does not use the book that it was given, and what to do; empty if it does.
    const std::string& without_book() const;
    DiskServerStatistics statistics() const;
    // While it runs.
    rdma::Result<> add(Export what);
    // From here on no client finds the disk: one that has it open gets ENOENT. Done when the
    // requests that the back end has already have ended, the disk is flushed and the back end is
    // given back (a file is locked no longer); fails if the flush did. If the task is given up the
    // disk is withdrawn all the same, with its last request.
    rdma::Call<> withdraw(std::string name);
    // Other sessions and addresses that may open a disk, as in Export. Those that have it open and
    // may not any more get EACCES; nothing changes for the others.
    rdma::Result<> set_guests(const std::string& name, std::vector<std::string> sessions,
                              std::vector<std::string> addresses);
    std::vector<DiskStatistics> disks() const;
    std::vector<Writer> writers() const;
    // Takes the right to write a disk from the session that has it: whatever that still sends gets
    // ESTALE, and another session may open the disk. For a client that is dead or must not go on.
    rdma::Result<> evict(const std::string& name);
    // Takes nothing more in, lets the back ends finish, and flushes them. Clients go on with the
    // server's successor, if there is one in time.
    rdma::Call<> stop();

private:
    class State;
    explicit DiskServer(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace feroce::block
