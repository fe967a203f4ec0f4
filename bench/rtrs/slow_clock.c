/* Preloaded: time passes FEROCE_SLOW_CLOCK times slower. Under a tool that makes programs as many
 * times slower, what they decide by time (who drives the device, what waits for what) stays as it
 * is without the tool. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static long long factor(void) {
    static long long value;
    if (value == 0) {
        const char* const text = getenv("FEROCE_SLOW_CLOCK");
        value = text != NULL && atoll(text) > 0 ? atoll(text) : 1;
    }
    return value;
}

static const struct timespec* longer(const struct timespec* time, struct timespec* out) {
    if (time == NULL) return NULL;
    const long long all = (time->tv_sec * SECOND + time->tv_nsec) * factor();
    out->tv_sec = all / SECOND;
    out->tv_nsec = all % SECOND;
    return out;
}

int clock_gettime(clockid_t clock, struct timespec* out) {
    const long failed = syscall(SYS_clock_gettime, clock, out);
    if (failed != 0 || clock != CLOCK_MONOTONIC) return (int)failed;
    const long long all = (out->tv_sec * SECOND + out->tv_nsec) / factor();
    out->tv_sec = all / SECOND;
    out->tv_nsec = all % SECOND;
    return 0;
}

int ppoll(struct pollfd* fds, nfds_t count, const struct timespec* timeout, const sigset_t* mask) {
    struct timespec scaled;
    const struct timespec* const wait = longer(timeout, &scaled);
    return (int)syscall(SYS_ppoll, fds, count, wait, mask, _NSIG / 8);
}

/* Callgrind does not know it; programs do without. */
int epoll_pwait2(int set, struct epoll_event* events, int count, const struct timespec* timeout,
                 const sigset_t* mask) {
    (void)set, (void)events, (void)count, (void)timeout, (void)mask;
    errno = ENOSYS;
    return -1;
}
