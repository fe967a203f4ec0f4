// MarkFile: the flush mark of a file or a block device, one byte in a small text file beside its
// writer record. It is written in place, which needs no room on a full disk, and without a sync:
// the page cache outlives a killed server, and a mark of before the machine's last start means
// nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "block/flush_mark.hpp"
#include "feroce/error.hpp"

namespace feroce::block {

class MarkFile final : public FlushMark {
public:
    // Made if there is none. `boot`: another value after each start of the machine.
    static rdma::Result<std::unique_ptr<MarkFile>> open(const std::string& record,
                                                        std::uint64_t backing, std::uint64_t boot);
    MarkFile(int fd, std::uint64_t backing, std::uint64_t boot);
    ~MarkFile() override;

    // What a predecessor has left of this backing store and this boot: Clear if there is nothing,
    // Failed if its state cannot be read.
    MarkState found() const { return found_; }

private:
    int load();  // 0 or an errno.
    int put(MarkState state) override;

    int fd_;
    std::string title_;  // All that is before the state.
    MarkState found_ = MarkState::Clear;
};

// Whether everything was written back, as the kernel remembers it for a file system and not for a
// file. Asked once: the next caller is told only of what failed later.
struct WriteBack {
    bool fine = false;
    std::string why = {};  // It is not, or cannot be said.
};
// By a descriptor that was opened after the predecessor's end. Blocks until the whole file system
// is written.
WriteBack ask_write_back(int fd);

}  // namespace feroce::block
