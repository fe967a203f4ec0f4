// XrcFiles: XRC domains that are shared through a file: opening one with the same file gives the
// same domain, within this process. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "base/result.hpp"
#include "device/xrc.hpp"

namespace feroce::process {

class XrcFiles {
public:
    explicit XrcFiles(device::XrcDomains& domains) : domains_(domains) {}

    // `fd` -1: a domain of its own. `flags`: O_CREAT and O_EXCL, as for open(2).
    Result<std::uint32_t> open(int fd, int flags);
    // Once for each open(). EBUSY if it was the last and the domain still has receive queues.
    Result<void> close(std::uint32_t domain);

private:
    struct Shared {
        std::uint32_t domain = 0;
        std::uint32_t opens = 0;
    };

    device::XrcDomains& domains_;
    std::mutex mutex_;
    std::map<std::pair<std::uint64_t, std::uint64_t>, Shared> by_file_;  // By filesystem and inode.
};

}  // namespace feroce::process
