// What libraries of ours call and glibc 2.31 does not have: linked into each file of the archive
// that ./feroce dist makes, and into nothing else. Hidden, so that nobody else finds it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

// libstdc++ leaves atomic operations out where it is true. False is always right.
HIDDEN char __libc_single_threaded = 0;

// For where the system call is missing or forbidden.
static ssize_t read_random(void* out, size_t size) {
    const int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t got;
    do got = read(file, out, size);
    while (got < 0 && errno == EINTR);
    close(file);
    return got;
}

// For std::random_device, which cannot be told of a failure.
HIDDEN uint32_t arc4random(void) {
    const int code = errno;
    uint32_t value = 0;
    ssize_t got;
    do got = getrandom(&value, sizeof value, 0);
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof value) got = read_random(&value, sizeof value);
    if (got != (ssize_t)sizeof value) abort();
    errno = code;
    return value;
}

// The system call may be missing too; the caller knows what to do then.
HIDDEN int epoll_pwait2(int set, struct epoll_event* events, int room,
                        const struct timespec* timeout, const sigset_t* mask) {
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif
    return (int)syscall(SYS_epoll_pwait2, set, events, room, timeout, mask, sizeof(uint64_t));
}

#define ERRORS(X)                                                                                  \
    X(EPERM)                                                                                       \
    X(ENOENT) X(ESRCH) X(EINTR) X(EIO) X(ENXIO) X(E2BIG) X(ENOEXEC) X(EBADF) X(ECHILD) X(          \
        EAGAIN) X(ENOMEM) X(EACCES) X(EFAULT) X(ENOTBLK) X(EBUSY) X(EEXIST) X(EXDEV) X(ENODEV)     \
        X(ENOTDIR) X(EISDIR) X(EINVAL) X(ENFILE) X(EMFILE) X(ENOTTY) X(ETXTBSY) X(EFBIG) X(ENOSPC) \
            X(ESPIPE) X(EROFS) X(EMLINK) X(EPIPE) X(EDOM) X(ERANGE) X(EDEADLK) X(ENAMETOOLONG) X(  \
                ENOLCK) X(ENOSYS) X(ENOTEMPTY) X(ELOOP) X(ENOMSG) X(EIDRM) X(ECHRNG) X(EL2NSYNC)   \
                X(EL3HLT) X(EL3RST) X(ELNRNG) X(EUNATCH) X(ENOCSI) X(EL2HLT) X(EBADE) X(EBADR) X(  \
                    EXFULL) X(ENOANO) X(EBADRQC) X(EBADSLT) X(EBFONT) X(ENOSTR) X(ENODATA)         \
                    X(ETIME) X(ENOSR) X(ENONET) X(ENOPKG) X(EREMOTE) X(ENOLINK) X(EADV) X(ESRMNT)  \
                        X(ECOMM) X(EPROTO) X(EMULTIHOP) X(EDOTDOT) X(EBADMSG)                      \
                            X(EOVERFLOW) X(ENOTUNIQ) X(EBADFD) X(EREMCHG) X(ELIBACC) X(ELIBBAD) X( \
                                ELIBSCN) X(ELIBMAX) X(ELIBEXEC) X(EILSEQ) X(ERESTART) X(ESTRPIPE)  \
                                X(EUSERS) X(ENOTSOCK) X(EDESTADDRREQ) X(EMSGSIZE) X(EPROTOTYPE)    \
                                    X(ENOPROTOOPT) X(EPROTONOSUPPORT) X(ESOCKTNOSUPPORT) X(        \
                                        EOPNOTSUPP) X(EPFNOSUPPORT) X(EAFNOSUPPORT) X(EADDRINUSE)  \
                                        X(EADDRNOTAVAIL) X(ENETDOWN) X(ENETUNREACH) X(ENETRESET)   \
                                            X(ECONNABORTED) X(ECONNRESET) X(ENOBUFS) X(            \
                                                EISCONN) X(ENOTCONN) X(ESHUTDOWN) X(ETOOMANYREFS)  \
                                                X(ETIMEDOUT) X(ECONNREFUSED) X(EHOSTDOWN)          \
                                                    X(EHOSTUNREACH) X(EALREADY) X(EINPROGRESS) X(  \
                                                        ESTALE) X(EUCLEAN) X(ENOTNAM) X(ENAVAIL)   \
                                                        X(EISNAM) X(EREMOTEIO) X(EDQUOT) X(        \
                                                            ENOMEDIUM) X(EMEDIUMTYPE) X(ECANCELED) \
                                                            X(ENOKEY) X(EKEYEXPIRED)               \
                                                                X(EKEYREVOKED) X(EKEYREJECTED)     \
                                                                    X(EOWNERDEAD)                  \
                                                                        X(ENOTRECOVERABLE)         \
                                                                            X(ERFKILL)             \
                                                                                X(EHWPOISON)

HIDDEN const char* strerrorname_np(int code) {
    switch (code) {
#define X(name) \
    case name:  \
        return #name;
        ERRORS(X)
#undef X
        case 0:
            return "0";
        default:
            return NULL;
    }
}
