#include "port/identity.hpp"

#include <sys/stat.h>
#include <unistd.h>

namespace feroce::port {

Identity capture_identity(Sharing sharing) {
    return {static_cast<std::uint32_t>(::geteuid()), network_of_caller(), sharing};
}

std::uint64_t network_of_caller() {
    struct stat info {};
    return ::stat("/proc/thread-self/ns/net", &info) == 0 ? info.st_ino : 0;
}

}  // namespace feroce::port
