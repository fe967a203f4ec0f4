// Preloaded into `feroce export`: a sync of a disk fails, once each time that somebody has made the
// file $FEROCE_TEST_FAILING_FLUSH. The server's own records are synced by fsync and do not fail.
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

struct io_uring;

// Without an io_uring the server calls the C library.
extern "C" [[gnu::visibility("default")]] int io_uring_queue_init(unsigned, io_uring*, unsigned) {
    return -EPERM;
}

extern "C" [[gnu::visibility("default")]] int fdatasync(int fd) {
    const char* const sign = std::getenv("FEROCE_TEST_FAILING_FLUSH");
    if (sign != nullptr && ::unlink(sign) == 0) {
        errno = EIO;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_fdatasync, fd));
}
