// A UDP socket of the kernel, by the system call itself: under rdma-core's librspreload the C
// library's socket() makes rsockets, which would stand on the ones that are made here.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "port/fd.hpp"

namespace feroce::port {

// An invalid one where there is none, and errno says why.
inline Fd inet_socket(int family, int flags = 0) {
    return Fd(
        static_cast<int>(::syscall(SYS_socket, family, SOCK_DGRAM | SOCK_CLOEXEC | flags, 0)));
}

}  // namespace feroce::port
