// Opening a disk whose server was started beside us, and may not listen yet.
#pragma once

#include <cerrno>
#include <chrono>

#include "feroce/block/client.hpp"
#include "feroce/loop.hpp"
#include "feroce/task.hpp"

namespace feroce::block {

// `open` gives a Task or Call of a Disk; it outlives the task.
template <class Open>
rdma::Task<rdma::Result<Disk>> open_patiently(rdma::Loop& loop, const Open& open) {
    const auto end = loop.after(std::chrono::seconds(2));
    for (;;) {
        rdma::Result<Disk> opened = co_await open();
        if (opened || opened.error().code != ECONNREFUSED || loop.now() > end) co_return opened;
        (void)co_await loop.sleep(std::chrono::milliseconds(50));
    }
}

}  // namespace feroce::block
