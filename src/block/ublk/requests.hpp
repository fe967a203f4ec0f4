// What the kernel asks of a ublk disk, in the words of a Disk, and what such a disk is to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "block/ublk/kernel_abi.hpp"
#include "feroce/block/client.hpp"
#include "feroce/task.hpp"

namespace feroce::block::ublk {

// Requests of at most so many bytes.
Params params_of(const DiskInfo& info, std::uint32_t request_bytes);

// The result that the kernel wants: the bytes of a read or a write, 0 for others, or minus an
// errno. `data` is the request's buffer.
rdma::Task<int> perform(Disk disk, Request request, std::span<std::byte> data);

}  // namespace feroce::block::ublk
