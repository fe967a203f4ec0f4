// A line between two TAP devices: so many bits a second, so long a way, a queue, and losses at
// random, the same in both directions. The kernel cuts what it sends into packets before it gives
// them to a TAP device, so no offload hides one from the line.
//
// line NAMESPACE NAMESPACE DEVICE MBIT_PER_S DELAY_US QUEUE_US LOSS SEED
// Prints a line when it is ready, and runs until its stdin closes.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>

#include "verbs/measure.hpp"

using namespace feroce::bench;
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

namespace {

constexpr std::size_t kFrameBytesMax = 9216;
// Preamble, checksum and gap of Ethernet, which take time on a wire too.
constexpr std::size_t kFramingBytes = 24;
constexpr int kBatch = 32;

struct Terms {
    double bytes_per_ns;
    nanoseconds delay;
    nanoseconds queue;
    double loss;
};

int open_tap(const char* space, const char* name) {
    const int net = ::open(space, O_RDONLY | O_CLOEXEC);
    require(net >= 0 && ::setns(net, CLONE_NEWNET) == 0, space);
    ::close(net);
    const int fd = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    require(fd >= 0, "/dev/net/tun");
    ifreq request{};
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    require(::ioctl(fd, TUNSETIFF, &request) == 0, "TUNSETIFF");
    return fd;
}

// One direction.
class Way {
public:
    Way(int from, int to, const Terms& terms, std::uint64_t seed)
        : from_(from), to_(to), terms_(terms), random_(seed), lost_(terms.loss) {}

    void run() {
        ::prctl(PR_SET_TIMERSLACK, 1UL);
        for (;;) {
            for (int i = 0; i < kBatch && take(); ++i) {
            }
            deliver();
            wait();
        }
    }

private:
    struct Frame {
        Clock::time_point due;
        std::vector<char> bytes;
    };

    // False if none is there.
    bool take() {
        char bytes[kFrameBytesMax];
        const ssize_t size = ::read(from_, bytes, sizeof bytes);
        if (size < 0) {
            require(errno == EAGAIN, "read of a TAP device");
            return false;
        }
        const Clock::time_point now = Clock::now();
        free_ = std::max(free_, now);
        if (free_ - now > terms_.queue) return true;
        const auto wire_bytes = static_cast<double>(static_cast<std::size_t>(size) + kFramingBytes);
        free_ += nanoseconds(static_cast<std::int64_t>(wire_bytes / terms_.bytes_per_ns));
        if (!lost_(random_)) frames_.push_back({free_ + terms_.delay, {bytes, bytes + size}});
        return true;
    }
    void deliver() {
        const Clock::time_point now = Clock::now();
        for (; !frames_.empty() && frames_.front().due <= now; frames_.pop_front()) {
            const std::vector<char>& bytes = frames_.front().bytes;
            // A device that is down, or has no room, drops it, as a card does.
            (void)!::write(to_, bytes.data(), bytes.size());
        }
    }
    void wait() const {
        pollfd one{from_, POLLIN, 0};
        if (frames_.empty()) {
            ::poll(&one, 1, -1);
            return;
        }
        const auto left = duration_cast<nanoseconds>(frames_.front().due - Clock::now()).count();
        if (left <= 0) return;
        const timespec most{left / 1'000'000'000, left % 1'000'000'000};
        ::ppoll(&one, 1, &most, nullptr);
    }

    int from_;
    int to_;
    Terms terms_;
    std::mt19937_64 random_;
    std::bernoulli_distribution lost_;
    Clock::time_point free_{};  // When the last one has left.
    std::deque<Frame> frames_;  // In order of their time.
};

double number(const char* text) {
    char* end = nullptr;
    const double value = std::strtod(text, &end);
    if (end == text || *end != '\0' || value < 0) {
        std::fprintf(stderr, "line: '%s' is not a number\n", text);
        std::exit(2);
    }
    return value;
}

nanoseconds from_us(const char* text) {
    return nanoseconds(static_cast<std::int64_t>(number(text) * 1000));
}

}  // namespace

int main(int count, char** words) {
    if (count != 9) {
        std::fprintf(stderr,
                     "usage: line NAMESPACE NAMESPACE DEVICE MBIT_PER_S DELAY_US QUEUE_US LOSS "
                     "SEED\n");
        return 2;
    }
    const int a = open_tap(words[1], words[3]);
    const int b = open_tap(words[2], words[3]);
    const Terms terms{number(words[4]) / 8000, from_us(words[5]), from_us(words[6]),
                      std::min(number(words[7]), 1.0)};
    const auto seed = static_cast<std::uint64_t>(number(words[8]));
    std::thread([=] { Way(a, b, terms, seed).run(); }).detach();
    std::thread([=] { Way(b, a, terms, seed + 1).run(); }).detach();
    std::puts("ready");
    std::fflush(stdout);
    char byte;
    while (::read(STDIN_FILENO, &byte, 1) > 0) {
    }
    std::_Exit(0);
}
