#include "mem/far_memory.hpp"

#include <utility>

namespace feroce::mem {

namespace {

class HeapStaging final : public Staging {
public:
    HeapStaging(std::unique_ptr<std::byte[]> memory, std::size_t size)
        : Staging(ByteSpan(memory.get(), size)), memory_(std::move(memory)) {}

private:
    std::unique_ptr<std::byte[]> memory_;
};

}  // namespace

std::unique_ptr<Staging> heap_staging(std::size_t size) {
    return std::make_unique<HeapStaging>(std::make_unique_for_overwrite<std::byte[]>(size), size);
}

}  // namespace feroce::mem
