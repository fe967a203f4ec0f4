#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

#include "base/assert.hpp"
#include "feroce/runtime.hpp"

namespace feroce::rdma {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Large blocks begin where a huge page can, and ask for one. Smaller ones are aligned here, by a
// request that is a little larger: malloc of glibc 2.36 finds no room for an aligned block where
// one of the same size was freed, so that a server grew with every connection it had had.
class PageMemory final : public std::pmr::memory_resource {
    static constexpr std::size_t kCacheLine = 64;

    // What lies before a smaller block: where the memory begins that it is in.
    struct Start {
        void* memory;
    };
    static std::size_t least(std::size_t alignment) { return std::max(alignment, kCacheLine); }
    static std::align_val_t huge(std::size_t alignment) {
        return std::align_val_t{std::max(alignment, kHugePage)};
    }
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
        if (bytes >= kHugePage) {
            void* memory = ::operator new(bytes, huge(alignment));
            // A hint: without huge pages the memory serves as well.
            ::madvise(memory, bytes & ~(kHugePage - 1), MADV_HUGEPAGE);
            return memory;
        }
        std::size_t room = bytes + least(alignment);
        void* const memory = ::operator new(room + sizeof(Start));
        void* block = static_cast<Start*>(memory) + 1;
        block = std::align(least(alignment), bytes, block, room);
        ::new (static_cast<Start*>(block) - 1) Start{memory};
        return block;
    }
    void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
        if (bytes >= kHugePage) return ::operator delete(memory, huge(alignment));
        ::operator delete((static_cast<Start*>(memory) - 1)->memory);
    }
    bool do_is_equal(const memory_resource& other) const noexcept override {
        return this == &other;
    }
};

timespec to_timespec(Duration time) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
    return {static_cast<std::time_t>(seconds.count()), static_cast<long>((time - seconds).count())};
}

// The processors of the process, as its first thread may use them: threads that are pinned to one
// must not take that for all there are.
struct Processors {
    static const Processors& of_process() {
        static const Processors all;
        return all;
    }

    Processors() {
        cpu_set_t set;
        CPU_ZERO(&set);
        if (::sched_getaffinity(::getpid(), sizeof set, &set) != 0) CPU_SET(0, &set);
        for (std::size_t i = 0; i < places.size(); ++i) {
            const bool ours = CPU_ISSET(i, &set);
            places[i] = ours ? static_cast<std::uint16_t>(count) : 0;
            count += ours;
        }
    }

    std::size_t count = 0;
    std::array<std::uint16_t, CPU_SETSIZE> places{};  // Of each among ours; 0 for others.
};

}  // namespace

RealRuntime::RealRuntime() : wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (wake_fd_ < 0)
        throw std::system_error(errno, std::generic_category(),
                                "no descriptor for a loop; see `ulimit -n`");
}

RealRuntime::~RealRuntime() {
    ::close(wake_fd_);
}

Instant RealRuntime::now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return Instant{std::chrono::duration_cast<Duration>(since)};
}

void RealRuntime::wait(Instant until, std::span<const int> fds) {
    std::array<pollfd, 16> few;
    std::vector<pollfd> many;  // Only loops with many completion queues allocate before they sleep.
    std::span<pollfd> polled = std::span(few).first(std::min(few.size(), fds.size() + 1));
    if (fds.size() + 1 > few.size()) {
        many.resize(fds.size() + 1);
        polled = many;
    }
    polled[0] = {wake_fd_, POLLIN, 0};
    for (std::size_t i = 0; i < fds.size(); ++i) polled[i + 1] = {fds[i], POLLIN, 0};
    timespec timeout{};
    if (until != kNever) timeout = to_timespec(std::max(until - now(), Duration{}));
    // A signal ends it early, which callers expect.
    ::ppoll(polled.data(), polled.size(), until == kNever ? nullptr : &timeout, nullptr);
    std::uint64_t count;
    if (polled[0].revents != 0) [[maybe_unused]]
        const ssize_t taken = ::read(wake_fd_, &count, sizeof count);
}

void RealRuntime::wake() {
    const std::uint64_t one = 1;
    // It fails only when the counter is full, and then the waiter wakes anyway.
    [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof one);
}

void RealRuntime::relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

std::pmr::memory_resource& RealRuntime::memory() {
    static PageMemory pages;
    return pages;
}

std::uint64_t RealRuntime::random() {
    std::uint64_t bits = 0;
    ASSERT(::getrandom(&bits, sizeof bits, 0) == sizeof bits);
    return bits;
}

std::string RealRuntime::user_directory() {
    // The one where the soft device keeps what it shows of its processes; above the waist it may
    // have to be made, since the device may be another.
    const std::string path = "/dev/shm/feroce-" + std::to_string(::geteuid());
    ::mkdir(path.c_str(), 0700);
    struct stat info {};
    const bool ours = ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                      info.st_uid == ::geteuid() && (info.st_mode & 0077) == 0;
    return ours ? path : std::string();
}

unsigned RealRuntime::processor_count() {
    return static_cast<unsigned>(Processors::of_process().count);
}

unsigned RealRuntime::current_processor() {
    const Processors& all = Processors::of_process();
    const int now = ::sched_getcpu();
    return now < 0 ? 0 : all.places[static_cast<std::size_t>(now) % all.places.size()];
}

}  // namespace feroce::rdma
