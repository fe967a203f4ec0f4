// OpenFile: a file or a block device that is to be exported: its descriptors, what was found out
// about it, its writer record and its flush mark. To open one blocks, perhaps for as long as its
// file system takes to be written: a server that runs has it done by a thread. So it knows no loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "block/file_call.hpp"
#include "block/mark_file.hpp"
#include "block/record_file.hpp"
#include "feroce/block/backend.hpp"
#include "feroce/error.hpp"

namespace feroce::block {

// Of memory that is read and written around the page cache.
inline constexpr std::size_t kDirectAlignment = 4096;

class OpenFile {
public:
    // Blocks. `random` becomes the store's identity if it has no record yet. Calls nothing of the
    // options.
    static rdma::Result<std::unique_ptr<OpenFile>> open(const std::string& path,
                                                        const FileOptions& options,
                                                        std::uint64_t random);
    ~OpenFile();
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;

    int fd() const { return fd_; }
    // Linux tells a descriptor once that pages could not be written: this one is for syncs alone.
    int sync_fd() const { return sync_fd_ >= 0 ? sync_fd_ : fd_; }
    bool is_device() const { return is_device_; }
    bool direct() const { return direct_; }  // Around the page cache, in blocks of:
    std::uint32_t block_size() const { return shape_.logical_block; }
    std::uint64_t size() const;
    Shape shape() const;                                       // Both as it is now.
    DeviceId device() const { return device_; }                // That it lies on,
    DeviceId record_device() const { return record_device_; }  // and its record.

    // As it was found or made.
    const WriterRecord& record() const { return record_; }
    MarkFile* mark() const { return mark_.get(); }  // Null: it is only read.
    // A predecessor was killed while it flushed, and what it wrote counts as lost: the first
    // failure of the mark.
    bool flush_was_lost() const { return flush_was_lost_; }
    // One sentence for the server's operator; empty: there is nothing to tell.
    const std::string& remark() const { return remark_; }

    // Keeps the record; then the mark's first `failures` are in it. 0 or an errno. Any thread, one
    // at a time.
    int save(const WriterRecord& record, std::uint64_t failures) const;

private:
    explicit OpenFile(int fd);

    rdma::Result<> probe(const FileOptions& options);
    rdma::Result<> lock();
    rdma::Result<> probe_device();
    rdma::Result<> probe_size();
    bool probe_direct();
    bool reads(std::size_t size) const;
    // Finds the writer record, or makes one.
    rdma::Result<> remember(const std::string& path, const FileOptions& options,
                            std::uint64_t random);
    rdma::Result<> find_mark(const std::string& path);

    int fd_;
    int sync_fd_;
    bool is_device_ = false;
    bool direct_ = false;
    Shape shape_;
    DeviceId device_{};
    DeviceId record_device_{};
    std::uint64_t identity_ = 0;  // Of the backing store.
    WriterRecord record_;
    std::optional<RecordFile> record_file_;  // Not for one that is only read,
    std::unique_ptr<MarkFile> mark_;         // as this.
    bool flush_was_lost_ = false;
    std::string remark_;
};

}  // namespace feroce::block
