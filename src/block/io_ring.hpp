// IoRing: the io_uring of a loop. What is submitted in one round of the loop goes to the kernel
// with one call at the beginning of the next; completions come back in the loop's thread. What the
// kernel does not take now it gets again in the next round; should it take nothing any more, the
// calls are made by threads.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>

#include "block/call_pool.hpp"
#include "block/file_call.hpp"
#include "feroce/loop.hpp"

namespace feroce::block {

class IoRing final : public CallRunner, public rdma::Source {
public:
    // The ring of this loop, made at the first call; null where the kernel refuses one.
    static std::shared_ptr<IoRing> of(rdma::Loop& loop);

    explicit IoRing(rdma::Loop& loop) : loop_(loop) {}
    ~IoRing() override;

    bool start();  // False: the kernel refuses.
    void submit(BackendRequest& request) override;

    bool poll() override;
    void arm() override {}
    int fd() const override { return event_fd_; }
    void take_events() override;

private:
    void hand_over();
    void give_up();

    rdma::Loop& loop_;
    io_uring ring_{};
    bool started_ = false;
    int event_fd_ = -1;
    rdma::List<BackendRequest> waiting_;   // Without an entry yet.
    rdma::List<BackendRequest> prepared_;  // With an entry that the kernel has not taken, in order.
    std::shared_ptr<CallPool> instead_;    // Once the kernel takes nothing any more.
    bool polling_ = false;
};

}  // namespace feroce::block
