// repoll_create(), repoll_ctl() and repoll_wait(): a set of rsockets and descriptors of the kernel
// that is kept between calls. As the kernel's epoll, with -1 and errno, but for EPOLLET: what is
// ready is told at every call.
#pragma once

#include <sys/epoll.h>

namespace feroce::rsockets {

int make_epoll(int flags);
int change_epoll(int epoll, int operation, int descriptor, const epoll_event* event);
int wait_epoll(int epoll, epoll_event* out, int room, int timeout_ms);
bool close_epoll(int epoll);  // False: it is none.
// A descriptor is closed: no set has it any more.
void leave_epolls(int descriptor);

}  // namespace feroce::rsockets
