#include "process/xrc_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/rollback.hpp"

namespace feroce::process {

Result<std::uint32_t> XrcFiles::open(int fd, int flags) {
    if (fd == -1) return domains_.create();
    struct stat about {};
    if (::fstat(fd, &about) != 0) return Error{EBADF, "no such file descriptor"};
    const std::pair<std::uint64_t, std::uint64_t> key(about.st_dev, about.st_ino);
    const std::lock_guard lock(mutex_);
    const auto found = by_file_.find(key);
    if (found == by_file_.end() && (flags & O_CREAT) == 0)
        return Error{ENOENT, "the file names no domain yet"};
    if (found != by_file_.end() && (flags & O_EXCL) != 0)
        return Error{EINVAL, "the file names a domain already"};
    Shared& shared = by_file_[key];
    if (shared.opens == 0) {
        Rollback forget([&] { by_file_.erase(key); });
        shared.domain = domains_.create();
        forget.keep();
    }
    ++shared.opens;
    return shared.domain;
}

Result<void> XrcFiles::close(std::uint32_t domain) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(by_file_.begin(), by_file_.end(), [domain](const auto& entry) {
        return entry.second.domain == domain;
    });
    if (found != by_file_.end() && found->second.opens > 1) {
        --found->second.opens;
        return {};
    }
    TRY(domains_.destroy(domain));
    if (found != by_file_.end()) by_file_.erase(found);
    return {};
}

}  // namespace feroce::process
