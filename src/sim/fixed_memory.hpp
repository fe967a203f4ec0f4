// FixedMemory: memory of one simulated machine, at an address that is the same in every run,
// because addresses travel in packets. Programs take from it what they register.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>

namespace feroce::sim {

class FixedMemory {
public:
    // `index` of the machine. One world at a time: two would want the same addresses.
    FixedMemory(std::uint32_t index, std::size_t bytes);

    std::pmr::memory_resource& resource() { return pool_; }

private:
    struct Mapping {
        Mapping(std::uint32_t index, std::size_t size);
        ~Mapping();
        Mapping(const Mapping&) = delete;
        Mapping& operator=(const Mapping&) = delete;

        void* start;
        std::size_t bytes;
    };

    Mapping mapping_;  // First, so that it goes last.
    std::pmr::monotonic_buffer_resource all_;
    std::pmr::unsynchronized_pool_resource pool_;
};

}  // namespace feroce::sim
