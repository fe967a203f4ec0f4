// Where a disk's bytes are: a file or block device, memory, or nowhere. Programs may bring their
// own. A back end belongs to one loop's thread; it ends when nothing that was submitted is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "feroce/block/types.hpp"
#include "feroce/error.hpp"
#include "feroce/list.hpp"
#include "feroce/loop.hpp"
#include "feroce/task.hpp"

namespace feroce::block {

// Lives in its submitter until `done` is called, with 0 or an errno. May be done before submit()
// returns. Range and alignment have been checked.
struct BackendRequest : rdma::ListNode {
    IoKind kind = IoKind::Read;
    bool fua = false;       // Done only when it is durable.
    bool preflush = false;  // What was done before it is durable before it begins.
    bool no_unmap = false;  // Zeroes keep their space.
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::span<std::byte> data;  // Of reads and writes.
    void (*done)(BackendRequest& request, int error) = nullptr;

    // Set before `done` with an error: something that was done before may be lost as well. Of a
    // flush that goes without saying.
    bool lost = false;

    // The back end's.
    void* owner = nullptr;
    std::uint64_t progress = 0;
    std::uint8_t step = 0;
    int own_error = 0;
    std::byte* aligned = nullptr;
};

// To keep a writer record. Lives in its submitter until `done` is called, with 0 or an errno.
struct RecordRequest {
    WriterRecord record;
    void (*done)(RecordRequest& request, int error) = nullptr;
};

class Backend {
public:
    Backend() = default;
    virtual ~Backend() = default;
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;

    // What one of these throws fails the request that it was called for with EIO, and no other; it
    // comes out of the loop. submit() and keep() may throw only if they have not taken theirs.
    virtual Shape shape() = 0;  // As it is now: the size may change.
    virtual void submit(BackendRequest& request) = 0;

    // What keep() was given last, of servers before this one too; nothing if there is nothing that
    // a late writer could spoil. A back end whose content outlives it overrides both: otherwise
    // clients that come back after the server was started again get ESTALE.
    virtual std::optional<WriterRecord> writer_record() { return record_; }
    // Done when the record is as durable as a flush makes the disk's content. One at a time.
    virtual void keep(RecordRequest& request) {
        record_ = request.record;
        request.done(request, 0);
    }

private:
    WriterRecord record_;
};

// Forgets when it ends; so its identity is to be another each time, drawn at random.
rdma::Result<std::shared_ptr<Backend>> memory_backend(std::uint64_t size, std::uint64_t identity);
// Keeps nothing and reads as zeroes, for measuring what is around it.
std::shared_ptr<Backend> null_backend(std::uint64_t size);

struct FileOptions {
    bool read_only = false;
    // Around the page cache, where the file system allows it.
    bool direct = true;
    // Without it, and where the kernel refuses it, a few threads make the calls.
    bool io_uring = true;
    // The folder of the writer record. Empty: the file's own; for a block device the folder that
    // systemd gives ($STATE_DIRECTORY), or /var/lib/feroce.
    std::string state = {};
    // Gets one sentence for the server's operator: what happened, and what to do.
    std::function<void(const std::string& sentence)> tell = {};
};

// A file or a block device. Reads and writes of many files of one loop share an io_uring. Blocks
// until the file has a durable record, and, if a server was killed while it flushed it, until its
// file system is written: for a server that does not run yet.
rdma::Result<std::shared_ptr<Backend>> file_backend(rdma::Loop& loop, const std::string& path,
                                                    const FileOptions& options = {});
// The same by a thread, while the loop goes on; files of dead devices stop no others, up to 64 at a
// time. If the task is given up, nobody waits: the thread ends what it has begun, and the loop, if
// it is still there, closes the file.
rdma::Task<rdma::Result<std::shared_ptr<Backend>>> open_file_backend(rdma::Loop& loop,
                                                                     std::string path,
                                                                     FileOptions options = {});

}  // namespace feroce::block
