// IoRing: the io_uring of a loop. What is submitted in one round of the loop goes to the kernel
// with one call at the beginning of the next; completions come back in the loop's thread.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>

#include "block/file_call.hpp"
#include "feroce/loop.hpp"

namespace feroce::block {

class IoRing final : public rdma::Source {
public:
    // The ring of this loop, made at the first call; null where the kernel refuses one.
    static std::shared_ptr<IoRing> of(rdma::Loop& loop);

    explicit IoRing(rdma::Loop& loop) : loop_(loop) {}
    ~IoRing();
    IoRing(const IoRing&) = delete;
    IoRing& operator=(const IoRing&) = delete;

    bool start();  // False: the kernel refuses.
    void submit(BackendRequest& request, const FileCall& call);

    bool poll() override;
    void arm() override {}
    int fd() const override { return event_fd_; }
    void take_events() override;

private:
    rdma::Loop& loop_;
    io_uring ring_{};
    bool started_ = false;
    int event_fd_ = -1;
    unsigned prepared_ = 0;  // Entries that the kernel has not been told of.
    bool polling_ = false;
};

}  // namespace feroce::block
