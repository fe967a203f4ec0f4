// QueueMemory: where an engine's queue pairs and their send requests live. With many of them a
// packet finds not only its cache lines cold but their addresses untranslated, and a walk through
// the page tables costs as much as a line. So like stands beside like, and in large pages as soon
// as there is enough of it to fill one. Keeps what was freed for the next; engine lock.
#pragma once

#include <cstddef>
#include <memory_resource>

namespace feroce::device {

class QueueMemory {
public:
    std::pmr::memory_resource* resource() { return &pool_; }

private:
    class Chunks final : public std::pmr::memory_resource {
        void* do_allocate(std::size_t bytes, std::size_t alignment) override;
        void do_deallocate(void* chunk, std::size_t bytes, std::size_t alignment) override;
        bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
            return this == &other;
        }
    };

    Chunks chunks_;
    std::pmr::unsynchronized_pool_resource pool_{&chunks_};
};

}  // namespace feroce::device
