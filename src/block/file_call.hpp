// One call of the kernel for a file: what a step of a request comes down to, and where such calls
// are made.
#pragma once

#include <cstddef>
#include <cstdint>

#include "block/flush_mark.hpp"
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
    // Of a call that may take the kernel's report of lost writes. Only perform() knows of it.
    FlushMark* mark = nullptr;
    // Of a sync: so many marks were left by writes with FUA, and end with it.
    std::size_t left_marks = 0;

    // Blocks. What io_uring gives: a count, 0, or a negative errno. A marked write that ends with
    // an error of its own leaves its mark: a sync is to follow.
    int perform() const;

private:
    int make() const;
};

// Whether the result of a write with FUA may be an error of the write alone; if the file's next
// sync succeeds, it is. Any other may be the kernel's report of something else that was lost.
bool is_own_error(int result);

// What stops together when it stops: a file system, or a block device. The kernel's number of it;
// 0: not known.
enum class DeviceId : std::uint64_t {};

// The owner of a request: knows its next call, and is told of the call's end.
class FileCaller {
public:
    virtual DeviceId device() const = 0;  // That its calls wait for.
    virtual FileCall next_call(const BackendRequest& request) const = 0;
    virtual void called(BackendRequest& request, int result) = 0;

protected:
    ~FileCaller() = default;
};

inline FileCaller& caller_of(const BackendRequest& request) {
    return *static_cast<FileCaller*>(request.owner);
}

// Makes the next call of each request that it is given, and tells its owner, in the loop's thread
// and never before submit() returns. Until then the request's list node is the runner's.
class CallRunner {
public:
    CallRunner() = default;
    virtual ~CallRunner() = default;
    CallRunner(const CallRunner&) = delete;
    CallRunner& operator=(const CallRunner&) = delete;

    virtual void submit(BackendRequest& request) = 0;
};

}  // namespace feroce::block
