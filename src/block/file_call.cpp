// See file_call.hpp.
#include "block/file_call.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace feroce::block {

bool is_own_error(int result) {
    const std::array<int, 9> own{EINTR,  EINVAL, EFBIG,  EOPNOTSUPP, EFAULT,
                                 ENOMEM, EAGAIN, ENOSPC, EDQUOT};
    return std::find(own.begin(), own.end(), -result) != own.end();
}

int FileCall::perform() const {
    if (mark == nullptr) return make();
    const bool begun = mark->begin() == 0;
    const int result = begun ? make() : -EIO;
    const bool syncs = what == What::Sync;
    // Before the marks that were left to it: none of them may clear what this one has to tell.
    if (begun && (syncs || !is_own_error(result)))
        mark->end(result < 0 && !(syncs && result == -EINTR));
    for (std::size_t i = 0; i < left_marks && result != -EINTR; ++i) mark->end(false);
    return result;
}

int FileCall::make() const {
    const iovec part{data, length};
    const auto at = static_cast<off_t>(offset);
    ssize_t result = 0;
    switch (what) {
        case What::Sync:
            result = ::fdatasync(fd);
            break;
        case What::Read:
            result = ::preadv2(fd, &part, 1, at, 0);
            break;
        case What::Write:
            result = ::pwritev2(fd, &part, 1, at, flags);
            break;
        case What::Allocate:
            result = ::fallocate(fd, flags, at, static_cast<off_t>(length));
            break;
    }
    return result < 0 ? -errno : static_cast<int>(result);
}

}  // namespace feroce::block
