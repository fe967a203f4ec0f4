// Sockets over RDMA: exported, because programs that never call them need the names to load, and
// refused, because we do not have them.
#include <sys/types.h>

#include <cerrno>

#pragma GCC visibility push(default)
#include <rdma/rsocket.h>
#pragma GCC visibility pop

#include "process/log.hpp"

namespace {

int refuse_rsocket(const char* call) {
    errno = feroce::process::refuse(
        call, {EOPNOTSUPP, "rsockets are not supported; use the rdma_* calls or plain sockets"});
    return -1;
}

}  // namespace

int rsocket(int, int, int) {
    return refuse_rsocket("rsocket");
}
int rbind(int, const sockaddr*, socklen_t) {
    return refuse_rsocket("rbind");
}
int rlisten(int, int) {
    return refuse_rsocket("rlisten");
}
int raccept(int, sockaddr*, socklen_t*) {
    return refuse_rsocket("raccept");
}
int rconnect(int, const sockaddr*, socklen_t) {
    return refuse_rsocket("rconnect");
}
int rshutdown(int, int) {
    return refuse_rsocket("rshutdown");
}
int rclose(int) {
    return refuse_rsocket("rclose");
}
ssize_t rrecv(int, void*, size_t, int) {
    return refuse_rsocket("rrecv");
}
ssize_t rrecvfrom(int, void*, size_t, int, sockaddr*, socklen_t*) {
    return refuse_rsocket("rrecvfrom");
}
ssize_t rrecvmsg(int, msghdr*, int) {
    return refuse_rsocket("rrecvmsg");
}
ssize_t rsend(int, const void*, size_t, int) {
    return refuse_rsocket("rsend");
}
ssize_t rsendto(int, const void*, size_t, int, const sockaddr*, socklen_t) {
    return refuse_rsocket("rsendto");
}
ssize_t rsendmsg(int, const msghdr*, int) {
    return refuse_rsocket("rsendmsg");
}
ssize_t rread(int, void*, size_t) {
    return refuse_rsocket("rread");
}
ssize_t rreadv(int, const iovec*, int) {
    return refuse_rsocket("rreadv");
}
ssize_t rwrite(int, const void*, size_t) {
    return refuse_rsocket("rwrite");
}
ssize_t rwritev(int, const iovec*, int) {
    return refuse_rsocket("rwritev");
}
int rpoll(pollfd*, nfds_t, int) {
    return refuse_rsocket("rpoll");
}
int rselect(int, fd_set*, fd_set*, fd_set*, timeval*) {
    return refuse_rsocket("rselect");
}
int rgetpeername(int, sockaddr*, socklen_t*) {
    return refuse_rsocket("rgetpeername");
}
int rgetsockname(int, sockaddr*, socklen_t*) {
    return refuse_rsocket("rgetsockname");
}
int rsetsockopt(int, int, int, const void*, socklen_t) {
    return refuse_rsocket("rsetsockopt");
}
int rgetsockopt(int, int, int, void*, socklen_t*) {
    return refuse_rsocket("rgetsockopt");
}
int rfcntl(int, int, ...) {
    return refuse_rsocket("rfcntl");
}
off_t riomap(int, void*, size_t, int, int, off_t) {
    return refuse_rsocket("riomap");
}
int riounmap(int, void*, size_t) {
    return refuse_rsocket("riounmap");
}
size_t riowrite(int, const void*, size_t, off_t, int) {
    return static_cast<size_t>(refuse_rsocket("riowrite"));
}
