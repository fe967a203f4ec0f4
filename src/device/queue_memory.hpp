// QueueMemory: where an engine's queue pairs and their send requests live. With many of them a
// packet finds not only its cache lines cold but their addresses untranslated, and a walk through
// the page tables costs as much as a line. So like stands beside like, and in large pages as soon
// as there is enough of it to fill one. Keeps what was freed for the next; engine lock.
//
// Not a pool of the standard library: that of libstdc++ 12 takes a chunk that it has no memory to
// remember, and crashes.
#pragma once

#include <array>
#include <cstddef>
#include <memory_resource>
#include <vector>

namespace feroce::device {

class QueueMemory final : public std::pmr::memory_resource {
public:
    QueueMemory() = default;
    ~QueueMemory() override;
    QueueMemory(const QueueMemory&) = delete;
    QueueMemory& operator=(const QueueMemory&) = delete;

    // Blocks of one size, four sizes between a power of two and the next.
    static constexpr std::size_t kSizes = 4 * 15;
    struct Size {
        std::size_t index = 0;
        std::size_t bytes = 0;  // A multiple of the alignment that every block has.
    };
    static Size size_for(std::size_t bytes);

private:
    struct Free {
        Free* next;
    };
    struct Pool {
        Free* freed = nullptr;
        std::byte* fresh = nullptr;  // Of the newest chunk, what was never given out.
        std::size_t fresh_blocks = 0;
        std::size_t chunk_bytes = 0;  // Of the newest chunk.
    };
    struct Chunk {
        void* start = nullptr;
        std::size_t bytes = 0;
    };

    void* do_allocate(std::size_t bytes, std::size_t alignment) override;
    void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
        return this == &other;
    }
    void add_chunk(Pool& pool, std::size_t block_bytes);

    std::array<Pool, kSizes> pools_;
    std::vector<Chunk> chunks_;
};

}  // namespace feroce::device
