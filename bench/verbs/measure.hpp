// What both benchmark programs share: a pair of processes joined by a socket, a clock, and results
// as one line of JSON. The child is the far end and ends with its parent.
#pragma once

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace feroce::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] inline void fail(const char* what) {
    std::perror(what);
    std::exit(1);
}

inline void require(bool good, const char* what) {
    if (!good) fail(what);
}

inline double cpu_seconds(int who) {
    rusage usage{};
    ::getrusage(who, &usage);
    const auto in_seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    return in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
}

// One end of the socket that joins the two processes.
class Channel {
public:
    explicit Channel(int fd) : fd_(fd) {}

    template <class T>
    void send(const T& value) const {
        require(::send(fd_, &value, sizeof value, MSG_NOSIGNAL) == sizeof value,
                "send to the peer");
    }
    template <class T>
    T receive() const {
        T value{};
        require(::recv(fd_, &value, sizeof value, MSG_WAITALL) == sizeof value,
                "receive from the peer");
        return value;
    }
    bool readable() const {
        char byte;
        return ::recv(fd_, &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0;
    }

private:
    int fd_;
};

// Gives each end its own core where there are two: left alone, two spinning processes can share one
// for whole time slices, and the figure would be the scheduler's.
inline void pin_to_core(int which) {
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed) || seen++ != which) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        ::sched_setaffinity(0, sizeof one, &one);
    }
}

// Runs `far(channel)` in a child and `near(channel)` here; returns the CPU seconds of both.
template <class Near, class Far>
double run_pair(Near near, Far far, bool pinned = true) {
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    const pid_t child = ::fork();
    require(child >= 0, "fork");
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close(ends[0]);
        if (pinned) pin_to_core(1);
        far(Channel(ends[1]));
        std::exit(0);  // Not _exit: what a compiler counts (cmake/training.cmake) is kept at exit.
    }
    ::close(ends[1]);
    if (pinned) pin_to_core(0);
    const double before = cpu_seconds(RUSAGE_SELF);
    near(Channel(ends[0]));
    const double own = cpu_seconds(RUSAGE_SELF) - before;
    ::close(ends[0]);
    int status = 0;
    require(::waitpid(child, &status, 0) == child && status == 0, "the far end failed");
    return own + cpu_seconds(RUSAGE_CHILDREN);
}

struct Latencies {
    std::vector<double> seconds;

    void print() {
        std::sort(seconds.begin(), seconds.end());
        const auto at = [this](double part) {
            return seconds[static_cast<std::size_t>(part *
                                                    static_cast<double>(seconds.size() - 1))];
        };
        std::printf("{\"us_p50\": %.3f, \"us_p99\": %.3f}\n", at(0.5) * 1e6, at(0.99) * 1e6);
    }
};

inline void print_stream(double bytes, double seconds, double cpu) {
    std::printf("{\"GB_per_s\": %.4f, \"cpu_s_per_GB\": %.4f}\n", bytes / seconds / 1e9,
                cpu / (bytes / 1e9));
}

inline void print_rate(double messages, double seconds) {
    std::printf("{\"Mmsg_per_s\": %.5f}\n", messages / seconds / 1e6);
}

}  // namespace feroce::bench
