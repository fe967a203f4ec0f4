// Fork support, which we do not need (nothing is pinned, so copy-on-write cannot split a region),
// and the /sys helpers that some programs call.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/environment.hpp"
#include "port/fd.hpp"
#include "process/abi_call.hpp"
#include "verbs/abi.hpp"

#pragma GCC visibility push(default)
extern "C" {
const char* ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char* directory, const char* file, char* out, std::size_t size);
int ibv_dontfork_range(void* base, std::size_t size);
int ibv_dofork_range(void* base, std::size_t size);
}
#pragma GCC visibility pop

int ibv_fork_init(void) {
    return 0;
}
ibv_fork_status ibv_is_fork_initialized(void) {
    return IBV_FORK_UNNEEDED;
}
int ibv_dontfork_range(void*, std::size_t) {
    return 0;
}
int ibv_dofork_range(void*, std::size_t) {
    return 0;
}

const char* ibv_get_sysfs_path(void) {
    const char* path = feroce::environment("SYSFS_PATH");
    return path != nullptr ? path : "/sys";
}

int ibv_read_sysfs_file(const char* directory, const char* file, char* out, std::size_t size) {
    // Our devices have no directory there; what ibv_devinfo shows of it we know.
    const char* name = std::strrchr(directory, '/');
    const bool ours = name != nullptr && std::strncmp(name, "/feroce_", 8) == 0;
    if (ours && std::strcmp(file, "board_id") == 0) return std::snprintf(out, size, "feroce");
    using feroce::process::FailAs;
    return feroce::process::abi_call<FailAs::MinusOne>("ibv_read_sysfs_file", [&]() -> int {
        const std::string path = std::string(directory) + "/" + file;
        const feroce::port::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        if (!fd.valid()) return -1;
        const ssize_t length = ::read(fd.get(), out, size);
        if (length <= 0) return -1;
        std::size_t end = static_cast<std::size_t>(length);
        if (out[end - 1] == '\n') --end;
        if (end < size) out[end] = '\0';
        return static_cast<int>(end);
    });
}
