// BookKeeper: a ClientBook in a file, locked while the server lives. Saved by a thread, once for
// all that wait.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "block/call_pool.hpp"
#include "block/client_book.hpp"
#include "block/exported_disk.hpp"
#include "feroce/error.hpp"
#include "feroce/loop.hpp"

namespace feroce::block {

class BookKeeper {
public:
    // Reads the book, if there is one. Fails if the file is none of ours, or in another server's
    // hands.
    static rdma::Result<std::unique_ptr<BookKeeper>> open(rdma::Loop& loop, std::string path,
                                                          ClientBook& book);
    ~BookKeeper();  // When nothing is being saved.
    BookKeeper(const BookKeeper&) = delete;
    BookKeeper& operator=(const BookKeeper&) = delete;

    bool saving() const { return saving_; }
    // Tells the waiter when what the book says now is durable, with 0, or an errno; perhaps at
    // once.
    void settle(ExportedDisk::Waiter& waiter);
    void settle();

private:
    BookKeeper(rdma::Loop& loop, std::string path, ClientBook& book, int lock);
    void save();
    void saved(std::uint64_t version, int error);

    std::shared_ptr<CallPool> pool_;
    std::string path_;
    ClientBook& book_;
    int lock_;
    std::uint64_t saved_;  // The version that is durable.
    bool saving_ = false;
    bool again_ = false;
    rdma::List<ExportedDisk::Waiter> waiting_;  // For the next one,
    rdma::List<ExportedDisk::Waiter> told_;     // and for the one that is being saved.
};

}  // namespace feroce::block
