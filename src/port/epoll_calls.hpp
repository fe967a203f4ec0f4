// epoll by the system calls themselves: rdma-core's librspreload, from release 65 on, replaces the
// C library's functions by repoll_*, which stand on the sets that are made here. None of these is a
// point where a thread is cancelled.
#pragma once

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace feroce::port {

// As the functions without the word: -1, and errno says why.
inline int kernel_epoll_create() {
    return static_cast<int>(::syscall(SYS_epoll_create1, EPOLL_CLOEXEC));
}

inline int kernel_epoll_ctl(int set, int operation, int fd, epoll_event* event) {
    return static_cast<int>(::syscall(SYS_epoll_ctl, set, operation, fd, event));
}

inline int kernel_epoll_wait(int set, epoll_event* events, int room, int milliseconds) {
    return static_cast<int>(
        ::syscall(SYS_epoll_pwait, set, events, room, milliseconds, nullptr, 0));
}

}  // namespace feroce::port
