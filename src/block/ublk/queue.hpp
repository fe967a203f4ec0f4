// Queue: serves one ublk device from its loop. For each tag the kernel has a command of ours, which
// comes back with a request; its result goes back with the command for the next. The kernel moves
// data between a request and the tag's buffer, which is memory of the session: it goes on the
// network from there.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "block/ublk/kernel_abi.hpp"
#include "feroce/block/client.hpp"
#include "feroce/loop.hpp"
#include "feroce/task_group.hpp"

namespace feroce::block::ublk {

class Queue final : public rdma::Source {
public:
    // Of a device that was added and not started. Its thread is the one that serves.
    static rdma::Result<std::unique_ptr<Queue>> open(rdma::Loop& loop, Disk disk,
                                                     std::uint32_t device, std::uint16_t depth,
                                                     std::uint32_t request_bytes);
    ~Queue();
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    // The device was stopped, and nothing of it is with us.
    bool over() const { return with_kernel_ == 0 && tasks_.empty(); }

    bool poll() override;
    void arm() override {}
    int fd() const override { return event_fd_; }
    void take_events() override;

private:
    Queue(rdma::Loop& loop, Disk disk, std::uint16_t depth, std::uint32_t request_bytes);
    rdma::Result<> prepare(std::uint32_t device);
    void hand_over(std::uint16_t tag, std::uint32_t command, int result);
    void begin(std::uint16_t tag);
    rdma::Task<void> serve(std::uint16_t tag);
    std::span<std::byte> buffer(std::uint16_t tag) const;

    rdma::Loop& loop_;
    Disk disk_;
    const std::uint16_t depth_;
    const std::uint32_t request_bytes_;
    std::optional<rtrs::SessionBuffer> memory_;  // A buffer for each tag.
    io_uring ring_{};
    bool has_ring_ = false;
    bool attached_ = false;
    bool polling_ = false;
    int event_fd_ = -1;
    int device_fd_ = -1;
    const Request* requests_ = nullptr;  // The kernel's, by tag; valid while a request is with us.
    std::size_t mapped_ = 0;
    unsigned unsent_ = 0;       // Entries that the kernel has not taken.
    unsigned with_kernel_ = 0;  // Commands, those entries too.
    rdma::TaskGroup tasks_;     // Ends first.
};

}  // namespace feroce::block::ublk
