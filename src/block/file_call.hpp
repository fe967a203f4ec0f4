// One call of the kernel for a file: what a step of a request comes down to.
#pragma once

#include <cstdint>

#include "feroce/block/backend.hpp"

namespace feroce::block {

struct FileCall {
    enum class What : std::uint8_t { Sync, Read, Write, Allocate };

    What what = What::Sync;
    int fd = -1;
    std::byte* data = nullptr;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    int flags = 0;  // Of pwritev2 or fallocate.

    // Blocks. What io_uring gives: a count, 0, or a negative errno.
    int perform() const;
};

// Who is told of a call's end.
class FileCaller {
public:
    virtual void called(BackendRequest& request, int result) = 0;

protected:
    ~FileCaller() = default;
};

}  // namespace feroce::block
