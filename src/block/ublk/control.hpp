// Control: ublk's control device. Each call waits for the kernel; start() and stop() wait for
// requests to be served, so they must not be made by the thread that serves them.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>

#include "block/ublk/kernel_abi.hpp"
#include "feroce/error.hpp"

namespace feroce::block::ublk {

// Tells devices of ours from those of other servers.
inline constexpr std::uint64_t kOurMark = 0x6665'726f'6365'0001;

class Control {
public:
    // Fails where the kernel has no ublk, or does not let us: ENOENT, EACCES, EOPNOTSUPP.
    static rdma::Result<std::unique_ptr<Control>> open();
    ~Control();
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;

    // The number of a device with one queue.
    rdma::Result<std::uint32_t> add(std::uint16_t depth, std::uint32_t request_bytes);
    rdma::Result<> set_params(std::uint32_t device, Params params);
    // Returns when the disk is there, and its partitions were looked for.
    rdma::Result<> start(std::uint32_t device);
    // Returns when the disk is gone. Requests that were not served fail.
    rdma::Result<> stop(std::uint32_t device);
    rdma::Result<> remove(std::uint32_t device);
    rdma::Result<DeviceFacts> facts(std::uint32_t device);

private:
    Control() = default;
    rdma::Result<> call(const char* what, std::uint32_t number, const ControlCommand& command);

    io_uring ring_{};
    bool has_ring_ = false;
    int fd_ = -1;
};

}  // namespace feroce::block::ublk
