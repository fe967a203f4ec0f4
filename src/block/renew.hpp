// A disk that stays open while its users come and go.
#pragma once

#include <cerrno>
#include <utility>

#include "feroce/block/client.hpp"
#include "feroce/task.hpp"

namespace feroce::block {

// For the first user after a time without any: what was lost or taken away before is not its
// concern, so a disk on which nothing can be flushed any more is closed and opened again. It is
// closed already (EBADF) if the opening failed for the user before. `open` gives a Task or Call of
// a Disk. True: it was opened again.
template <class Open>
rdma::Task<rdma::Result<bool>> renew(Disk& disk, const Open& open) {
    const auto flushed = co_await disk.flush();
    const int code = flushed ? 0 : flushed.error().code;
    if (code != EIO && code != ESTALE && code != EBADF) co_return false;
    (void)co_await disk.close();
    rdma::Result<Disk> opened = co_await open();
    if (!opened) co_return opened.error();
    disk = *std::move(opened);
    co_return true;
}

}  // namespace feroce::block
