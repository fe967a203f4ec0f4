// What a process costs, as /proc tells it.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/sanitizers.hpp"
#include "ring.hpp"

namespace feroce::share {

// A line of /proc/PID/status; -1 if the process is gone.
inline long status_of(pid_t pid, const std::string& name) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(name + ":")) return std::atol(line.c_str() + name.size() + 1);
    return -1;
}

// Of all its threads; in seconds.
inline double cpu_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(file, line);
    unsigned long user = 0, system = 0;
    const std::size_t after_name = line.rfind(')');
    if (after_name == std::string::npos ||
        std::sscanf(line.c_str() + after_name + 1,
                    " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        return 0;
    return static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// The most that a process had since it was first looked at. Memory is in KiB.
struct Watched {
    explicit Watched(pid_t process) : pid(process) {
        look();
        threads_before = threads;
        memory_before = memory;
        cpu_before = cpu_of(pid);
    }
    void look() {
        threads = std::max(threads, status_of(pid, "Threads"));
        memory = std::max(memory, status_of(pid, "VmRSS"));
    }
    // Looks until the other process has ended; its wait status.
    int look_until_end_of(pid_t other) {
        int status = 0;
        while (::waitpid(other, &status, WNOHANG) == 0) {
            look();
            ::poll(nullptr, 0, 1);
        }
        return status;
    }
    double cpu() const { return cpu_of(pid) - cpu_before; }
    void print(int messages) const {
        std::printf("%d messages: threads %ld -> %ld, memory %ld -> %ld KiB, CPU %.2f s\n",
                    messages, threads_before, threads, memory_before, memory, cpu());
    }

    pid_t pid;
    long threads = 0, threads_before = 0;
    long memory = 0, memory_before = 0;
    double cpu_before = 0;
};

// In KiB. AddressSanitizer keeps what was freed, up to 256 MiB; ThreadSanitizer has shadows.
#if defined(FEROCE_ASAN) || defined(FEROCE_TSAN)
inline constexpr long kGrowth = 512 * 1024;
#else
inline constexpr long kGrowth = 16 * 1024;
#endif

// How many an attacker sends; FEROCE_TEST_MESSAGES says otherwise.
inline int messages() {
    const char* wanted = std::getenv("FEROCE_TEST_MESSAGES");
    return wanted == nullptr ? 10'000 : std::atoi(wanted);
}

}  // namespace feroce::share
