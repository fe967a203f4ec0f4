// The limit of what goes by rings: one process copies blocks into memory that two share, the other
// copies them out, and nothing else is done. bare_ring SIZE: of the buffers at both ends.
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <new>

#include "../verbs/measure.hpp"

using namespace feroce::bench;

namespace {

constexpr double kSeconds = 0.6;
constexpr std::size_t kRing = 1 << 20;
constexpr std::size_t kBlock = 64 << 10;
static_assert(kRing % kBlock == 0);

struct Ring {
    alignas(128) std::atomic<std::uint64_t> written{0};
    alignas(128) std::atomic<std::uint64_t> read{0};
    alignas(128) std::atomic<bool> over{false};
    alignas(4096) std::array<char, kRing> bytes{};
};

Ring& shared_ring() {
    void* const memory =
        ::mmap(nullptr, sizeof(Ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(memory != MAP_FAILED, "mmap");
    return *new (memory) Ring;
}

// Blocks of a buffer, over and over.
class Blocks {
public:
    explicit Blocks(std::size_t size) : bytes_(size, 'x') {}
    char* next() {
        char* const out = bytes_.data() + at_;
        at_ = at_ + 2 * kBlock > bytes_.size() ? 0 : at_ + kBlock;
        return out;
    }

private:
    std::vector<char> bytes_;
    std::size_t at_ = 0;
};

void read_all(Ring& ring, std::size_t size) {
    Blocks to(size);
    for (std::uint64_t at = 0;;) {
        if (ring.written.load(std::memory_order_acquire) - at < kBlock) {
            if (ring.over.load(std::memory_order_relaxed)) return;
            continue;
        }
        std::memcpy(to.next(), &ring.bytes[at % kRing], kBlock);
        at += kBlock;
        ring.read.store(at, std::memory_order_release);
    }
}

double write_for_a_while(Ring& ring, std::size_t size) {
    Blocks from(size);
    std::uint64_t at = 0;
    for (const Clock::time_point start = Clock::now(); seconds_since(start) < kSeconds;) {
        if (at + kBlock - ring.read.load(std::memory_order_acquire) > kRing) continue;
        std::memcpy(&ring.bytes[at % kRing], from.next(), kBlock);
        at += kBlock;
        ring.written.store(at, std::memory_order_release);
    }
    ring.over.store(true, std::memory_order_relaxed);
    return static_cast<double>(at);
}

}  // namespace

int main(int argc, char** argv) {
    const std::size_t size = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 0;
    if (size < kBlock) {
        std::fprintf(stderr, "usage: bare_ring SIZE, of at least %zu bytes\n", kBlock);
        return 2;
    }
    Ring& ring = shared_ring();
    double moved = 0;
    const double cpu = run_pair([&](Channel) { moved = write_for_a_while(ring, size); },
                                [&](Channel) { read_all(ring, size); });
    print_stream(moved, kSeconds, cpu);
    return 0;
}
