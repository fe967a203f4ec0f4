// rpoll() and rselect(): rsockets and descriptors of the kernel, waited for together. As the
// kernel's calls, with -1 and errno.
#pragma once

#include <poll.h>
#include <sys/select.h>

namespace feroce::rsockets {

int poll_all(pollfd* entries, nfds_t count, int timeout_ms);
int select_all(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout);

}  // namespace feroce::rsockets
