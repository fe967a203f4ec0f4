// A library to preload into a server: kills its process when fdatasync() has returned and before
// the caller has seen what. FEROCE_TEST_KILL says when: `failed`, or `done` for the first success.
#include <dlfcn.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

extern "C" [[gnu::visibility("default")]] int fdatasync(int fd) {
    static const auto real = reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, "fdatasync"));
    const int result = real(fd);
    const char* const when = std::getenv("FEROCE_TEST_KILL");
    if (when != nullptr && std::strcmp(when, result == 0 ? "done" : "failed") == 0)
        ::kill(::getpid(), SIGKILL);
    return result;
}
