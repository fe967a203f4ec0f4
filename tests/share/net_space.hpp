// A network of the test's own: the port, the unix names and the addresses in it are nobody else's.
// Needs root; what cannot be made ends the program with the exit status that ctest takes for "this
// user cannot run the test".
#pragma once

#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace feroce::share {

inline constexpr int kCannotRun = 77;
inline constexpr unsigned kOrdinaryUser = 65534;

inline void enter_private_network() {
    const int fd =
        ::unshare(CLONE_NEWNET) == 0 ? ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (fd < 0 || ::ioctl(fd, SIOCSIFFLAGS, &request) != 0) {
        std::fprintf(stderr, "no network namespace can be made: run as root\n");
        std::exit(kCannotRun);
    }
    ::close(fd);
}

// For a forked child: from root to somebody without any privilege.
inline bool become_ordinary_user() {
    return ::setresgid(kOrdinaryUser, kOrdinaryUser, kOrdinaryUser) == 0 &&
           ::setresuid(kOrdinaryUser, kOrdinaryUser, kOrdinaryUser) == 0;
}

}  // namespace feroce::share
