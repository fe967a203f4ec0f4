// BookKeeper: a ClientBook in a file, locked while the server lives. Saved by a thread, once for
// all that wait.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "block/book_saver.hpp"
#include "block/call_pool.hpp"
#include "block/client_book.hpp"
#include "feroce/error.hpp"
#include "feroce/loop.hpp"

namespace feroce::block {

class BookKeeper final : public BookSaver {
public:
    // Reads the book, if there is one. Fails if the file is none of ours, or, after two seconds, if
    // another server has it locked (EBUSY).
    static rdma::Result<std::unique_ptr<BookKeeper>> open(rdma::Loop& loop, std::string path,
                                                          ClientBook& book);
    ~BookKeeper() override;
    BookKeeper(const BookKeeper&) = delete;
    BookKeeper& operator=(const BookKeeper&) = delete;

    bool saving() const override { return saving_; }
    void settle(ExportedDisk::Waiter& waiter) override;
    void settle() override;

private:
    BookKeeper(rdma::Loop& loop, std::string path, ClientBook& book, int lock);
    void save();
    void saved(std::uint64_t version, int error);

    std::shared_ptr<CallPool> pool_;
    std::string path_;
    ClientBook& book_;
    int lock_;
    DeviceId device_;      // That it lies on.
    std::uint64_t saved_;  // The version that is durable.
    bool saving_ = false;
    bool again_ = false;
    rdma::List<ExportedDisk::Waiter> waiting_;  // For the next one,
    rdma::List<ExportedDisk::Waiter> told_;     // and for the one that is being saved.
};

}  // namespace feroce::block
