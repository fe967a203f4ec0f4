// Preloaded: the C library's epoll is no longer the kernel's, as under librspreload of rdma-core
// 65, whose functions make sets of rsockets. These make none.
#include <sys/epoll.h>

#include <cerrno>

extern "C" {

[[gnu::visibility("default")]] int epoll_create1(int) noexcept {
    errno = EPERM;
    return -1;
}

[[gnu::visibility("default")]] int epoll_ctl(int, int, int, epoll_event*) noexcept {
    errno = EPERM;
    return -1;
}

[[gnu::visibility("default")]] int epoll_wait(int, epoll_event*, int, int) {
    errno = EPERM;
    return -1;
}
}
